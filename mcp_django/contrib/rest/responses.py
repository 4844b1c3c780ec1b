"""Conversion of a view's response to a tool result."""

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from mcp_django import internal_request
from mcp_django.contrib.http_tools.bodies import is_json
from mcp_django.contrib.rest.errors import format_error
from mcp_django.internal_request import close_response
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.content import BlobResourceContents, EmbeddedResource, TextContent
from mcp_django.protocol.errors import ToolError
from mcp_django.server.primitives.results import ToolResult

STATUS_KEY = "mcp-django/status"
"""Key of `_meta` for the HTTP status of the response, unless it is 200."""
MAX_BINARY_BYTES = 16 * 1024 * 1024
"""Maximum size in bytes of a streamed body. Models cannot use larger ones."""


def build_result(response: HttpResponseBase, request: HttpRequest, *, wrapped: bool | None) -> ToolResult:
    """Convert a response to a tool result.

    `wrapped` is True if the tool's output schema has the body under "result", None without an output schema. The
    response is rendered here, by the renderer that the view selected. The response and its resources are closed.
    """
    try:
        render = getattr(response, "render", None)
        if callable(render) and not getattr(response, "is_rendered", True):
            response = render()
        if response.status_code >= 400:
            return _convert_error(response)
        return _convert_success(response, request, wrapped)
    finally:
        close_response(response, request)


def build_refusal(problem: Exception) -> ToolResult | None:
    """Convert an exception as Django does, or return None for unexpected ones."""
    status_and_text = internal_request.get_error_response(problem)
    return None if status_and_text is None else _build_error_result(*status_and_text)


def _build_error_result(status: int, text: str) -> ToolResult:
    return ToolResult(text, is_error=True, meta={STATUS_KEY: status})


def _convert_error(response: HttpResponseBase) -> ToolResult:
    data = getattr(response, "data", None)
    if data is None and not response.streaming and is_json(response.get("Content-Type", "")):
        data = _parse_json(_read_content(response))
    elif data is None and not response.streaming and response.get("Content-Type", "").startswith("text/plain"):
        data = _read_content(response).decode(errors="replace")
    text = format_error(response.status_code, data, response.get("Retry-After"))
    return ToolResult(text, is_error=True, meta={STATUS_KEY: response.status_code})


def _convert_success(response: HttpResponseBase, request: HttpRequest, wrapped: bool | None) -> ToolResult:
    status, media_type = response.status_code, response.get("Content-Type", "")
    meta = {} if status == 200 else {STATUS_KEY: status}
    if 300 <= status < 400:
        return ToolResult(f"{response.reason_phrase}: {response.get('Location', '')}", meta=meta)

    content = _read_content(response)
    if not content:
        return ToolResult(f"{response.reason_phrase}.", meta=meta)

    if is_json(media_type):
        text = content.decode()
        return ToolResult(TextContent(text), structured=_build_structured(_parse_json(content), wrapped), meta=meta)
    if media_type.startswith("text/"):
        charset = getattr(response, "charset", None) or "utf-8"
        return ToolResult(TextContent(content.decode(charset, errors="replace")), meta=meta)

    plain = media_type.partition(";")[0].strip() or "application/octet-stream"
    blob = BlobResourceContents(content, uri=request.build_absolute_uri(), mime_type=plain)
    return ToolResult(EmbeddedResource(blob), meta=meta)


def _build_structured(value: Any, wrapped: bool | None) -> Any:
    if wrapped is None:
        return value if isinstance(value, dict) else {"result": value} if isinstance(value, list) else None
    return {"result": value} if wrapped else value


def _parse_json(content: bytes) -> Any:
    try:
        return jsonrpc.loads(content)
    except ValueError:
        return None  # such as NaN, which DRF writes if it is not strict


def _read_content(response: HttpResponseBase) -> bytes:
    if not response.streaming:
        content: bytes = getattr(response, "content", b"")
        return content
    return _collect(iter(response))


def _collect(parts: Iterable[bytes]) -> bytes:
    found: list[bytes] = []
    size = 0
    for part in parts:
        found.append(part)
        size += len(part)
        if size > MAX_BINARY_BYTES:
            raise ToolError(f"The response is larger than {MAX_BINARY_BYTES // 1024 // 1024} MiB; request less")
    return b"".join(found)
