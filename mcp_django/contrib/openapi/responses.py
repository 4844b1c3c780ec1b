"""Responses: tool results, resource contents and output schemas."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from mcp_django.contrib.openapi.document.operations import Operation
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.schemas import Schema, Schemas, tellings
from mcp_django.contrib.openapi.requests.messages import Reply
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextContent,
)
from mcp_django.protocol.errors import ToolError
from mcp_django.providers.media_types import contents_of, header_type
from mcp_django.schema import DeclarationError
from mcp_django.schema.custom_schema import check_schema
from mcp_django.schema.validation.validation import Checker
from mcp_django.server.primitives.results import ToolResult

logger = logging.getLogger("mcp_django.providers")
STATUS = "mcp-django/status"
"""Key of the HTTP status in a result's `_meta`, unless it is 200."""
LONGEST = 2000
"""Maximum characters of an error text of the server."""
LINES = 20
ROUNDS = 4
"""Maximum rounds of removing invalid parts; then the structured content is empty."""
_HINTS = {
    401: "The credentials are missing or were rejected.",
    403: "This is not allowed.",
    404: "Not found, or not visible with these credentials.",
}


class Answer:
    """The structured output of a tool (`server.primitives.ToolOutput`).

    A reply that violates its document is not lost: the text has all of it, and the structured content the valid part.
    The first violation is logged.
    """

    def __init__(self, schema: Schema, checker: Checker, *, wrapped: bool, name: str) -> None:
        self.schema, self.wrapped = schema, wrapped
        self._checker, self._name, self._told = checker, name, False

    def structured(self, value: Any) -> Any:
        """Return the value of `extract_valid`, or an empty object."""
        return {} if value is None else value

    def fitting(self, value: Any) -> dict[str, Any]:
        """Return the part of a reply that the schema allows, under "result" if wrapped."""
        whole: Any = {"result": value} if self.wrapped else value
        if self._checker.is_valid(whole):
            found: dict[str, Any] = whole
            return found
        if not self._told:
            self._told = True
            logger.warning(
                "%s returned a reply that violates its document: %s", self._name, self._checker.problems(whole, "key")
            )
        for _ in range(ROUNDS):
            whole = _without(whole, self._checker.misfits(whole))
            if self._checker.is_valid(whole):
                return dict(whole)

        return {}


def answer_of(operation: Operation, references: References, where: str) -> Answer | None:
    """Build the output of the success response; None if nothing can be checked."""
    schema = _success(operation, references, where)
    if schema is None or schema in ({}, True):
        return None
    try:
        candidates = tellings(
            lambda levels: _told(schema, Schemas(references, given=False, levels=levels, where=where))
        )
        wrapped = not _is_object(schema, references, where)
    except DeclarationError as problem:
        logger.warning("%s has no output schema: %s", where, problem)
        return None

    for made in candidates:
        try:
            checker = check_schema(made := _rooted(made, wrapped=wrapped), where)
        except DeclarationError:
            continue  # Too complex: try fewer levels.
        # An empty object must be valid, so that some part of any reply fits.
        return Answer(made, checker, wrapped=wrapped, name=where) if checker.is_valid({}) else None

    logger.warning("%s has no output schema: the schema in the document is too large or too complex", where)
    return None


def _told(schema: Any, schemas: Schemas) -> Schema:
    made = schemas.of(schema)
    definitions = schemas.definitions()
    return {**made, "$defs": definitions} if definitions else made


def _success(operation: Operation, references: References, where: str) -> Any:
    """Find the schema of the first success response in JSON; None without one."""
    responses = operation.entry.get("responses", {})
    responses = responses if isinstance(responses, Mapping) else {}
    good = sorted(status for status in responses if str(status).startswith("2"))
    for status in [*good, *(["default"] if not good and "default" in responses else [])]:
        try:
            contents = references.resolved(responses[status], where).get("content")
        except DeclarationError:
            return None
        for media_type, content in contents.items() if isinstance(contents, Mapping) else ():
            if is_json(media_type) and isinstance(content, Mapping):
                return content.get("schema")
    return None


def _is_object(schema: Any, references: References, where: str) -> bool:
    """Return True if all values of this schema are objects."""
    found = references.resolved(schema, where) if isinstance(schema, Mapping) else {}
    return found.get("type") == "object" and found.get("nullable") is not True


def _rooted(made: Schema, *, wrapped: bool) -> Schema:
    """Return the schema with an object at its root."""
    if not wrapped:
        return {"type": "object", **made}
    inner = {key: value for key, value in made.items() if key != "$defs"}
    schema: Schema = {"type": "object", "properties": {"result": inner}}
    return {**schema, "$defs": made["$defs"]} if "$defs" in made else schema


def is_json(media_type: str) -> bool:
    """Return True for JSON and types built on it (RFC 6839)."""
    plain = media_type.partition(";")[0].strip().lower()
    return plain in ("application/json", "text/json", "*/*", "application/*") or plain.endswith("+json")


def result_of(reply: Reply, answer: Answer | None) -> ToolResult:
    """Build the result of a tool. Raises ToolError for an error status."""
    refuse(reply)
    meta = {} if reply.status == HTTPStatus.OK else {STATUS: reply.status}
    if not reply.body:
        return ToolResult(f"{_phrase(reply.status)}.", meta=meta)

    media_type, charset = header_type(reply.header("content-type"))
    if media_type is None or is_json(media_type):
        try:
            value = jsonrpc.loads(reply.body)
        except ValueError:
            value = None
        else:
            text = TextContent(reply.body.decode())
            return ToolResult(text, structured=None if answer is None else answer.fitting(value), meta=meta)
    if media_type is not None and media_type.startswith("image/") and media_type != "image/svg+xml":
        return ToolResult(ImageContent(reply.body, media_type), meta=meta)
    if media_type is not None and media_type.startswith("audio/"):
        return ToolResult(AudioContent(reply.body, media_type), meta=meta)

    found = contents_of(reply.body, media_type, charset)
    if isinstance(found, BlobResourceContents):
        blob = BlobResourceContents(reply.body, uri=f"data:{found.mime_type}", mime_type=found.mime_type)
        return ToolResult(EmbeddedResource(blob), meta=meta)

    return ToolResult(TextContent(found.text), meta=meta)


def contents(reply: Reply) -> Any:
    """Build the contents of a resource; None if it is missing. Raises ToolError."""
    if reply.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return None
    refuse(reply)
    media_type, charset = header_type(reply.header("content-type"))
    return contents_of(reply.body, media_type, charset)


def refuse(reply: Reply) -> None:
    """Raise ToolError with the status and the error text, unless it is a success."""
    if 200 <= reply.status < 300:
        return
    if reply.status < 400:
        raise ToolError(f"{reply.status} {_phrase(reply.status)}: the server sends the request elsewhere.")
    said = _said(reply)
    said = "" if said.casefold() == _phrase(reply.status).casefold() else said
    lines = [f"{reply.status} {_phrase(reply.status)}", said or _HINTS.get(reply.status, "")]
    wait = reply.header("retry-after").strip()
    if wait and wait.isprintable() and len(wait) <= 40:
        lines.append(f"Try again in {wait} seconds." if wait.isdigit() else f"Try again after {wait}.")
    raise ToolError("\n".join(line for line in lines if line), meta={STATUS: reply.status})


def _said(reply: Reply) -> str:
    """Extract the error text: problem details (RFC 9457), common members, or the body."""
    media_type, charset = header_type(reply.header("content-type"))
    if media_type is not None and not is_json(media_type) and not media_type.startswith("text/plain"):
        return ""  # A page for people is useless to a model.
    try:
        value = jsonrpc.loads(reply.body)
    except ValueError:
        found = contents_of(reply.body[: LONGEST * 4], media_type or "text/plain", charset)
        return "" if isinstance(found, BlobResourceContents) else _shortened(found.text)

    if isinstance(value, Mapping):
        words = [value[key] for key in ("title", "detail", "message", "error", "error_description") if key in value]
        texts = [word for word in words if isinstance(word, str) and word.strip()]
        rest = {key: value[key] for key in ("errors", "detail", "invalid-params") if isinstance(value.get(key), list)}
        if texts or rest:
            more = [jsonrpc.dumps(rest).decode()] if rest else []
            return _shortened("\n".join(dict.fromkeys([*texts, *more])))

    return _shortened(value if isinstance(value, str) else jsonrpc.dumps(value).decode())


def _shortened(text: str) -> str:
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    text = "\n".join([*lines[:LINES], "…"] if len(lines) > LINES else lines)
    text = "".join(char for char in text if char.isprintable() or char in "\n\t")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Status unknown"


def _without(value: Any, places: list[tuple[str | int, ...]]) -> Any:
    """Return a copy without these paths; a path into a list removes the list."""
    for place in places:
        names = []
        for step in place:
            if not isinstance(step, str):
                break
            names.append(step)
        value = _removed(value, names)
    return value if isinstance(value, dict) else {}


def _removed(value: Any, names: list[str]) -> Any:
    if not names or not isinstance(value, dict) or names[0] not in value:
        return value if names and isinstance(value, dict) else {}
    if len(names) == 1:
        return {key: inner for key, inner in value.items() if key != names[0]}
    return {**value, names[0]: _removed(value[names[0]], names[1:])}
