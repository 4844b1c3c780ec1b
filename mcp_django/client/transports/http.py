"""Streamable HTTP: the SDK's transport over an HTTP client with limits.

The SDK accepts responses of any size, and closes the connection at the first interrupted one. Here a response that is
too large, late, truncated, or invalid is an error of its call. Only an unreachable server ends the connection. The SDK
follows redirects within the origin. The redirected request equals the first one, credentials included.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, JSONRPCError, jsonrpc_message_adapter

from mcp_django.client.errors import ClientConnectionError, ClientError
from mcp_django.client.failures import flatten_error
from mcp_django.client.sdk_compat import CONNECTION_CLOSED_TEXT, DROPPED_LOG_PREFIXES, LIBRARY_LOGGERS, Streams
from mcp_django.client.transports.local_errors import LOCAL_ERROR_CODE, LocalErrors
from mcp_django.logs.redaction import URL_PATTERNS, RedactionFilter
from mcp_django.protocol import jsonrpc

if TYPE_CHECKING:
    from mcp_django.client.transports.targets import SSE, StreamableHTTP

SESSION_CLOSE_TIMEOUT_SECONDS: Final = 5.0
"""Seconds for the request that ends a session."""
ACCEPTED_ENCODINGS: Final = frozenset({"", "identity", "gzip", "deflate"})
"""Accepted content encodings.

A small response in another encoding can decompress to gigabytes.
"""
UNAVAILABLE_STATUSES: Final = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
"""Statuses of proxies for a server that is down or restarts.

MCP servers add a JSON-RPC error.
"""
_LOG_FILTER: Final = RedactionFilter(URL_PATTERNS, dropped_prefixes=DROPPED_LOG_PREFIXES)
UNREACHABLE_ERRORS: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)


@asynccontextmanager
async def open_streamable_http(target: StreamableHTTP) -> AsyncIterator[Streams]:
    """Open the message streams.

    Raises ClientConnectionError when the server becomes unreachable.
    """
    try:
        async with BoundedHTTPClient(target) as client:
            streams = streamable_http_client(target.url, http_client=client, max_sse_event_size=target.max_message_size)
            async with streams as pair:
                yield client.local_errors.wrap(pair)
    except BaseExceptionGroup as group:
        raise _get_cause(group) from group


def build_client_settings(target: StreamableHTTP | SSE) -> dict[str, Any]:
    """Return the options of `httpx2.AsyncClient` for a target."""
    _LOG_FILTER.install(LIBRARY_LOGGERS)
    connect, read = target.connect_timeout, target.read_timeout
    settings: dict[str, Any] = {
        "headers": {"Accept-Encoding": "gzip, deflate", **target.headers},
        "auth": target.auth,
        "timeout": httpx2.Timeout(connect, read=read),
        # Unlimited, because each call may hold a stream; a limit would make calls wait for each other.
        "limits": httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        "trust_env": target.environment_proxies,
        "transport": target.transport,
    }
    if target.ssl_context is not None:
        settings["verify"] = target.ssl_context
    return settings


class BoundedHTTPClient(httpx2.AsyncClient):
    """HTTP client that returns a readable response to each call.

    Errors of the server become JSON-RPC error responses.
    """

    def __init__(self, target: StreamableHTTP | SSE) -> None:
        super().__init__(**build_client_settings(target))
        self._limit = target.max_message_size
        self.local_errors = LocalErrors()
        """Errors of calls that were not sent."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request as `httpx2.AsyncClient` does.

        A POST only fails if the server is unreachable.
        """
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(SESSION_CLOSE_TIMEOUT_SECONDS).as_dict()
        if request.method != "POST":
            return await self._send_checked(request, options)

        try:
            response = await self._send_checked(request, options)
            if response.is_success and _get_media_type(response) == "text/event-stream":
                return response
            if response.next_request is not None:
                return response
            return await self._read_response(request, response)
        except UNREACHABLE_ERRORS:
            if _get_call_id(request) is None:
                return httpx2.Response(HTTPStatus.BAD_GATEWAY, request=request)
            raise
        except (_UnusableResponse, ClientError, httpx2.TransportError) as problem:
            return self._build_failure_response(request, problem)

    async def _send_checked(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        response = await super().send(request, **options)
        if has_unexpected_encoding(response):
            await response.aclose()
            raise _UnusableResponse("The response has an unrequested content encoding")
        return response

    async def _read_response(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return the complete response, or an error response in place of an invalid one."""
        try:
            body = await self._read_body(response)
        finally:
            await response.aclose()

        is_usable = (
            response.is_success or response.status_code == HTTPStatus.NOT_FOUND or _is_jsonrpc_error(response, body)
        )
        if is_usable and not _refuses_session(request, response, body):
            headers = [(name, value) for name, value in response.headers.multi_items() if name not in _FRAMING_HEADERS]
            return httpx2.Response(response.status_code, headers=headers, content=body, request=request)
        if _refuses_session(request, response, body):
            # The specification requires 404 (basic/transports, session management).
            return httpx2.Response(HTTPStatus.NOT_FOUND, request=request)

        data: dict[str, Any] = {"status": response.status_code}
        if (retry_after := response.headers.get("Retry-After", "")).isascii() and retry_after.isdigit():
            data["retryAfter"] = int(retry_after[:9])
        phrase = HTTPStatus(response.status_code).phrase if response.status_code in _KNOWN_STATUSES else ""
        answer = f"the server answered HTTP {response.status_code} {phrase}".rstrip()
        if response.status_code in UNAVAILABLE_STATUSES:
            return _build_error_response(request, CONNECTION_CLOSED, f"{CONNECTION_CLOSED_TEXT}: {answer}", data)
        return _build_error_response(request, INTERNAL_ERROR, f"{answer[0].upper()}{answer[1:]}", data)

    async def _read_body(self, response: httpx2.Response) -> bytes:
        pieces, size = [], 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > self._limit:
                raise _UnusableResponse(f"The response is larger than {self._limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def _build_failure_response(self, request: httpx2.Request, problem: Exception) -> httpx2.Response:
        """Build the response to a request that failed here, and leave the connection open."""
        match problem:
            case _UnusableResponse():
                return _build_error_response(request, INTERNAL_ERROR, str(problem))
            case ClientError():  # missing credential
                return _build_error_response(request, LOCAL_ERROR_CODE, str(problem), self.local_errors.store(problem))
            case httpx2.TimeoutException():
                text = f"{CONNECTION_CLOSED_TEXT}: the server did not respond in time"
            case _:
                text = f"{CONNECTION_CLOSED_TEXT} before the response was complete"
        return _build_error_response(request, CONNECTION_CLOSED, text)


class _UnusableResponse(Exception):
    """An unusable response; the text gives the reason."""


_FRAMING_HEADERS: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_KNOWN_STATUSES: Final = frozenset(HTTPStatus)


def _get_media_type(response: httpx2.Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def has_unexpected_encoding(response: httpx2.Response) -> bool:
    """Return True if the response has a content encoding that was not requested."""
    return response.headers.get("Content-Encoding", "").strip().lower() not in ACCEPTED_ENCODINGS


def _refuses_session(request: httpx2.Request, response: httpx2.Response, body: bytes) -> bool:
    """Return True if the JSON-RPC error of a response rejects the session.

    Servers of the Python SDK send it with the status 404, and those that follow an example of the TypeScript SDK with
    400.
    """
    refused = response.status_code in _SESSION_STATUSES and "mcp-session-id" in request.headers
    return refused and _NO_SESSION.search(body[:4096]) is not None


_SESSION_STATUSES: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
_NO_SESSION: Final = re.compile(
    rb"(?i)\b(?:no|not|invalid|unknown|expired)\b[^\"]{0,40}\bsession\b|\bsession\b[^\"]{0,40}\bnot\b"
)


def _is_jsonrpc_error(response: httpx2.Response, body: bytes) -> bool:
    """Return True if an error response contains a JSON-RPC error.

    That error is more precise than the status.
    """
    if _get_media_type(response) != "application/json":
        return False
    try:
        return isinstance(jsonrpc_message_adapter.validate_json(body, by_name=False), JSONRPCError)
    except ValueError:
        return False


def _get_call_id(request: httpx2.Request) -> str | int | None:
    """Return the id of the call in a request; None for a notification or a response."""
    try:
        message = jsonrpc.loads_exactly(request.content)
        return message.get("id") if "method" in message else None
    except (ValueError, AttributeError, TypeError, httpx2.RequestNotRead):
        return None


def _build_error_response(request: httpx2.Request, code: int, text: str, data: Any = None) -> httpx2.Response:
    """Build a JSON-RPC error response in place of the server's response."""
    error: dict[str, Any] = {"code": code, "message": text}
    if data is not None:
        error["data"] = data
    body = {"jsonrpc": "2.0", "id": _get_call_id(request), "error": error}
    return httpx2.Response(HTTPStatus.BAD_GATEWAY, json=body, request=request)


def _get_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the single cause in an exception group.

    The SDK's task groups wrap all errors.
    """
    errors = list(flatten_error(group))
    for error in errors:
        if isinstance(error, httpx2.TransportError):
            return ClientConnectionError(f"The server could not be reached: {describe_transport_error(error)}")
    other_errors = [error for error in errors if not (isinstance(error, MCPError) and error.code == CONNECTION_CLOSED)]
    return (other_errors or errors)[0] if len(other_errors or errors) == 1 else group


def describe_transport_error(error: Exception) -> str:
    """Describe a transport error without text from the peer."""
    if isinstance(error, httpx2.TimeoutException):
        return "it did not respond in time"
    if isinstance(error, httpx2.ConnectError):
        return str(error) or "no connection"
    if isinstance(error, httpx2.ProxyError):
        return "the proxy (see HTTPS_PROXY) refused the connection"
    return type(error).__name__
