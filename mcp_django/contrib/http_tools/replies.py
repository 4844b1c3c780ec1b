"""Replies to requests of tools, from views of this project or from remote servers."""

from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest

from mcp_django.extensions.errors import ToolError
from mcp_django.extensions.internal_requests import close_response, get_error_response

STATUS_META_KEY = "mcp-django/status"
"""Key of the HTTP status in a result's `_meta`, unless it is 200."""


@dataclass(frozen=True, slots=True)
class OperationReply:
    """A complete reply."""

    status: int
    headers: Mapping[str, str]
    """Values by lower-case name."""
    body: bytes = b""

    def get_header(self, name: str) -> str:
        return self.headers.get(name, "")

    @property
    def meta(self) -> dict[str, Any]:
        """Members of the result's `_meta`."""
        return {} if self.status == HTTPStatus.OK else {STATUS_META_KEY: self.status}


def get_phrase(status: int, default: str = "Status unknown") -> str:
    """Return the phrase of an HTTP status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return default


def is_streamed_async(response: Any) -> bool:
    """Return True if the body of a view's response must be read on the event loop."""
    return bool(getattr(response, "streaming", False) and getattr(response, "is_async", False))


def read_reply(response: Any, request: HttpRequest, max_bytes: int) -> OperationReply:
    """Render a view's response, read its body, and close it.

    Raises ToolError for a streamed body of more than `max_bytes`.
    """
    try:
        render = getattr(response, "render", None)
        if callable(render) and not getattr(response, "is_rendered", True):
            response = render()
        if not response.streaming:
            return _build_reply(response, getattr(response, "content", b""))
        body = bytearray()
        pieces: Iterable[bytes] = response
        for piece in pieces:
            body += piece
            check_size(len(body), max_bytes)
        return _build_reply(response, bytes(body))
    finally:
        close_response(response, request)


async def read_async_reply(response: Any, request: HttpRequest, max_bytes: int) -> OperationReply:
    """Read a response that is streamed on the event loop, as `read_reply`."""
    try:
        body = bytearray()
        pieces: AsyncIterable[bytes] = response.streaming_content
        async for piece in pieces:
            body += piece
            check_size(len(body), max_bytes)
        return _build_reply(response, bytes(body))
    finally:
        close_response(response, request)


def build_exception_reply(problem: Exception, request: HttpRequest | None) -> OperationReply:
    """Build the reply that Django would send for an exception, or raise it again."""
    if request is not None:
        close_response(None, request)
    status_and_text = get_error_response(problem)
    if status_and_text is None:
        raise problem
    return build_error_reply(*status_and_text)


def build_error_reply(status: int, text: str) -> OperationReply:
    """Build a reply with a plain text."""
    return OperationReply(status, {"content-type": "text/plain; charset=utf-8"}, text.encode())


def check_size(size: int, max_bytes: int) -> None:
    """Raise ToolError for a body that is too large."""
    if size > max_bytes:
        raise ToolError(f"The answer is larger than {max_bytes} bytes, which is the limit; ask for less")


def _build_reply(response: Any, body: bytes) -> OperationReply:
    return OperationReply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)
