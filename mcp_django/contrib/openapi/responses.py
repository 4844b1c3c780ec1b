"""Responses: tool results, resource contents and output schemas."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from mcp_django.contrib.http_tools.bodies import includes_json
from mcp_django.contrib.http_tools.replies import STATUS_META_KEY, OperationReply, get_phrase
from mcp_django.contrib.http_tools.tools import OperationOutput, Schema, wrap_schema
from mcp_django.contrib.openapi.document.operations import OpenAPIOperation
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.schemas import build_checked_schema
from mcp_django.extensions.calls import get_logger, jsonrpc, truncate
from mcp_django.extensions.errors import DeclarationError, ToolError
from mcp_django.extensions.http_client import parse_content_type
from mcp_django.extensions.primitives import ToolResult, build_contents
from mcp_django.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, TextContent, clean_text

logger = get_logger("mcp_django.providers")
MAX_ERROR_CHARACTERS = 2000
"""Maximum characters of an error text of the server."""
MAX_ERROR_LINES = 20
_HINTS = {
    401: "The credentials are missing or were rejected.",
    403: "This is not allowed.",
    404: "Not found, or not visible with these credentials.",
}


class OpenAPIToolOutput(OperationOutput):
    """The structured output of a tool.

    A reply that violates its document is not lost: the text has all of it, and the structured content the valid part.
    """

    logger = logger
    violation_message = "%s returned a reply that violates its document: %s"

    def extract_reply(self, value: Any) -> dict[str, Any]:
        """Return the part of a reply that the schema allows, under "result" if wrapped."""
        return self.extract_valid({"result": value} if self.is_wrapped else value) or {}


def build_output(operation: OpenAPIOperation, references: References, label: str) -> OpenAPIToolOutput | None:
    """Build the output of the success response; None if nothing can be checked."""
    schema = _find_success_schema(operation, references, label)
    if schema is None or schema in ({}, True):
        return None
    try:
        wrapped = not _is_object(schema, references, label)

        def wrap(translated: Schema) -> Schema:
            return wrap_schema(translated, is_required=False) if wrapped else {"type": "object", **translated}

        found = build_checked_schema(
            references, label, lambda schemas: schemas.translate(schema), is_input=False, wrap=wrap
        )
    except DeclarationError as problem:
        logger.warning("%s has no output schema: %s", label, problem)
        return None

    if found is None:
        logger.warning("%s has no output schema: the schema in the document is too large or too complex", label)
        return None
    # An empty object must be valid, so that some part of any reply fits.
    return OpenAPIToolOutput(*found, wrapped=wrapped, name=label) if found[1].is_valid({}) else None


def _find_success_schema(operation: OpenAPIOperation, references: References, where: str) -> Any:
    """Find the schema of the first success response in JSON; None without one."""
    responses = operation.definition.get("responses", {})
    responses = responses if isinstance(responses, Mapping) else {}
    success_statuses = sorted(status for status in responses if str(status).startswith("2"))
    for status in [*success_statuses, *(["default"] if not success_statuses and "default" in responses else [])]:
        try:
            contents = references.resolve(responses[status], where).get("content")
        except DeclarationError:
            return None
        for media_type, content in contents.items() if isinstance(contents, Mapping) else ():
            if includes_json(media_type) and isinstance(content, Mapping):
                return content.get("schema")
    return None


def _is_object(schema: Any, references: References, where: str) -> bool:
    """Return True if all values of this schema are objects."""
    found = references.resolve(schema, where) if isinstance(schema, Mapping) else {}
    return found.get("type") == "object" and found.get("nullable") is not True


def build_tool_result(reply: OperationReply, output: OpenAPIToolOutput | None) -> ToolResult:
    """Build the result of a tool. Raises ToolError for an error status."""
    check_status(reply)
    if not reply.body:
        return ToolResult(f"{get_phrase(reply.status)}.", meta=reply.meta)

    media_type, charset = parse_content_type(reply.get_header("content-type"))
    if media_type is None or includes_json(media_type):
        try:
            value = jsonrpc.loads(reply.body)
        except ValueError:
            value = None
        else:
            text = TextContent(reply.body.decode())
            return ToolResult(text, structured=None if output is None else output.extract_reply(value), meta=reply.meta)
    if media_type is not None and media_type.startswith("image/") and media_type != "image/svg+xml":
        return ToolResult(ImageContent(reply.body, media_type), meta=reply.meta)
    if media_type is not None and media_type.startswith("audio/"):
        return ToolResult(AudioContent(reply.body, media_type), meta=reply.meta)

    contents = build_contents(reply.body, media_type, charset)
    if isinstance(contents, BlobResourceContents):
        blob = BlobResourceContents(reply.body, uri=f"data:{contents.mime_type}", mime_type=contents.mime_type)
        return ToolResult(EmbeddedResource(blob), meta=reply.meta)

    return ToolResult(TextContent(contents.text), meta=reply.meta)


def build_resource_contents(reply: OperationReply) -> Any:
    """Build the contents of a resource; None if it is missing. Raises ToolError."""
    if reply.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return None
    check_status(reply)
    media_type, charset = parse_content_type(reply.get_header("content-type"))
    return build_contents(reply.body, media_type, charset)


def check_status(reply: OperationReply) -> None:
    """Raise ToolError with the status and the error text, unless it is a success."""
    if 200 <= reply.status < 300:
        return
    if reply.status < 400:
        raise ToolError(f"{reply.status} {get_phrase(reply.status)}: the server sends the request elsewhere.")
    error_text = _extract_error_text(reply)
    error_text = "" if error_text.casefold() == get_phrase(reply.status).casefold() else error_text
    lines = [f"{reply.status} {get_phrase(reply.status)}", error_text or _HINTS.get(reply.status, "")]
    wait = reply.get_header("retry-after").strip()
    if wait and wait.isprintable() and len(wait) <= 40:
        lines.append(f"Try again in {wait} seconds." if wait.isdigit() else f"Try again after {wait}.")
    raise ToolError("\n".join(line for line in lines if line), meta={STATUS_META_KEY: reply.status})


def _extract_error_text(reply: OperationReply) -> str:
    """Extract the error text: problem details (RFC 9457), common members, or the body."""
    media_type, charset = parse_content_type(reply.get_header("content-type"))
    if media_type is not None and not includes_json(media_type) and not media_type.startswith("text/plain"):
        return ""  # A page for people is useless to a model.
    try:
        value = jsonrpc.loads(reply.body)
    except ValueError:
        found = build_contents(reply.body[: MAX_ERROR_CHARACTERS * 4], media_type or "text/plain", charset)
        return "" if isinstance(found, BlobResourceContents) else _shorten(found.text)

    if isinstance(value, Mapping):
        words = [value[key] for key in ("title", "detail", "message", "error", "error_description") if key in value]
        texts = [word for word in words if isinstance(word, str) and word.strip()]
        rest = {key: value[key] for key in ("errors", "detail", "invalid-params") if isinstance(value.get(key), list)}
        if texts or rest:
            more = [jsonrpc.dumps(rest).decode()] if rest else []
            return _shorten("\n".join(dict.fromkeys([*texts, *more])))

    return _shorten(value if isinstance(value, str) else jsonrpc.dumps(value).decode())


def _shorten(text: str) -> str:
    lines = [line.rstrip() for line in clean_text(text).strip().splitlines() if line.strip()]
    text = "\n".join([*lines[:MAX_ERROR_LINES], "…"] if len(lines) > MAX_ERROR_LINES else lines)
    return truncate(text, MAX_ERROR_CHARACTERS)
