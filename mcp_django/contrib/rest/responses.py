"""Conversion of a view's response to a tool result.

The text of an error has one line for each problem. Its source are DRF's error bodies
(`exceptions.APIException.detail`).
"""

from collections.abc import Callable, Iterator, Mapping

from django.http import HttpRequest, HttpResponseBase
from rest_framework.settings import api_settings

from mcp_django.contrib.http_tools.bodies import BINARY_MEDIA_TYPE, is_json
from mcp_django.contrib.http_tools.replies import STATUS_META_KEY, OperationReply, get_phrase, read_reply
from mcp_django.extensions.calls import jsonrpc, truncate
from mcp_django.extensions.primitives import ToolResult
from mcp_django.types import BlobResourceContents, EmbeddedResource, TextContent

MAX_BINARY_BYTES = 16 * 1024 * 1024
"""Maximum size in bytes of a streamed body. Models cannot use larger ones."""
MAX_ERROR_LINES = 50
"""Maximum number of lines. Further problems can wait until these are fixed."""
MAX_ERROR_CHARACTERS = 4000
"""Maximum length of the text in characters."""


def build_result(
    response: HttpResponseBase,
    request: HttpRequest,
    *,
    wrapped: bool | None,
    convert: Callable[[object], object] | None = None,
) -> ToolResult:
    """Convert a response to a tool result.

    `convert` changes the value of a JSON body. `wrapped` is True if the tool's output schema has the body under
    "result", None without an output schema. The response is rendered here, by the renderer that the view selected. The
    response and its resources are closed.
    """
    reply = read_reply(response, request, MAX_BINARY_BYTES)
    if reply.status >= 400:
        return build_error_result(reply, getattr(response, "data", None))
    if reply.status >= 300:
        return ToolResult(f"{response.reason_phrase}: {reply.get_header('location')}", meta=reply.meta)
    if not reply.body:
        return ToolResult(f"{response.reason_phrase}.", meta=reply.meta)

    media_type = reply.get_header("content-type")
    if is_json(media_type):
        value = _parse_json(reply.body)
        converted = value if convert is None else convert(value)
        text = reply.body if converted == value else jsonrpc.dumps(converted)
        return ToolResult(TextContent(text.decode()), structured=_build_structured(converted, wrapped), meta=reply.meta)
    if media_type.startswith("text/"):
        charset = getattr(response, "charset", None) or "utf-8"
        return ToolResult(TextContent(reply.body.decode(charset, errors="replace")), meta=reply.meta)

    plain = media_type.partition(";")[0].strip() or BINARY_MEDIA_TYPE
    blob = BlobResourceContents(reply.body, uri=request.build_absolute_uri(), mime_type=plain)
    return ToolResult(EmbeddedResource(blob), meta=reply.meta)


def build_error_result(reply: OperationReply, data: object = None) -> ToolResult:
    """Convert an error to a tool result; `data` is its body before it was rendered."""
    media_type = reply.get_header("content-type")
    if data is None and is_json(media_type):
        data = _parse_json(reply.body)
    elif data is None and media_type.startswith("text/plain"):
        data = reply.body.decode(errors="replace")
    text = _format_error(reply.status, data, reply.get_header("retry-after"))
    return ToolResult(text, is_error=True, meta={STATUS_META_KEY: reply.status})


def _format_error(status: int, data: object, retry_after: str) -> str:
    """Format an error as one line per field, or in the view's own words.

    `retry_after` is in seconds. It is added unless the text contains it, as DRF's own text for throttled requests does.
    """
    lines = list(dict.fromkeys(_iter_lines(data, "")))
    if len(lines) > MAX_ERROR_LINES:
        lines = [*lines[:MAX_ERROR_LINES], f"… and {len(lines) - MAX_ERROR_LINES} more"]
    text = "\n".join(lines) or f"{status} {get_phrase(status, '')}".rstrip()
    if retry_after and retry_after not in text:
        text = f"{text}\nTry again in {retry_after} seconds."
    return truncate(text, MAX_ERROR_CHARACTERS)


def _iter_lines(data: object, path: str) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key == api_settings.NON_FIELD_ERRORS_KEY or (key == "detail" and not path):
                inner = path
            elif isinstance(key, int):
                inner = f"{path}[{key}]"
            else:
                inner = f"{path}.{key}" if path else str(key)
            yield from _iter_lines(value, inner)
    elif isinstance(data, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in data):
        for number, item in enumerate(data):
            yield from _iter_lines(item, f"{path}[{number}]")
    elif data is not None:
        items = data if isinstance(data, list | tuple) else [data]
        text = " ".join(str(item) for item in items)
        if text:
            yield f"{path}: {text}" if path else text


def _build_structured(value: object, wrapped: bool | None) -> object:
    if wrapped is None:
        if not isinstance(value, dict | list):
            return None
        wrapped = isinstance(value, list)
    return {"result": value} if wrapped else value


def _parse_json(content: bytes) -> object:
    try:
        return jsonrpc.loads(content)
    except ValueError:
        return None  # such as NaN, which DRF writes if it is not strict
