"""Streamable HTTP: the SDK's transport over an HTTP client with limits.

The SDK accepts responses of any size, and closes the connection at the first interrupted one. Here a response that is
too large, late, truncated, or invalid is an error of its call. Only an unreachable server ends the connection. The SDK
follows redirects within the origin. The redirected request equals the first one, credentials included.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, JSONRPCError, jsonrpc_message_adapter

from mcp_django.client.error_transport import CODE, carry
from mcp_django.client.errors import ClientConnectionError, ClientError
from mcp_django.client.transports.log_redaction import shorten_urls
from mcp_django.client.transports.streams import Streams, leaves

if TYPE_CHECKING:
    from mcp_django.client.transports.targets import SSE, StreamableHTTP

CLOSE_TIMEOUT: Final = 5.0
"""Seconds for the request that ends a session."""
ENCODINGS: Final = frozenset({"", "identity", "gzip", "deflate"})
"""Accepted content encodings.

A small response in another encoding can decompress to gigabytes.
"""
CLOSED: Final = "Connection closed"
"""The SDK's message for a closed connection, by which `failures` recognizes it."""
NOT_THERE: Final = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
"""Statuses of proxies for a server that is down or restarts.

MCP servers add a JSON-RPC error.
"""
UNREACHABLE: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)


@asynccontextmanager
async def open_streamable_http(target: StreamableHTTP) -> AsyncIterator[Streams]:
    """Open the message streams.

    Raises ClientConnectionError when the server becomes unreachable.
    """
    try:
        async with Answers(target) as client:
            streams = streamable_http_client(target.url, http_client=client, max_sse_event_size=target.max_message_size)
            async with streams as (reader, writer):
                yield reader, writer
    except BaseExceptionGroup as group:
        raise _cause(group) from group


def http_client_settings(target: StreamableHTTP | SSE) -> dict[str, Any]:
    """Return the options of `httpx2.AsyncClient` for a target."""
    shorten_urls()
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


class Answers(httpx2.AsyncClient):
    """HTTP client that returns a readable response to each call.

    Errors of the server become JSON-RPC error responses.
    """

    def __init__(self, target: StreamableHTTP | SSE) -> None:
        super().__init__(**http_client_settings(target))
        self._limit = target.max_message_size

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request as `httpx2.AsyncClient` does.

        A POST only fails if the server is unreachable.
        """
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(CLOSE_TIMEOUT).as_dict()
        if request.method != "POST":
            return await self._sent(request, options)

        try:
            response = await self._sent(request, options)
            if response.is_success and _media_type(response) == "text/event-stream":
                return response
            if response.next_request is not None:
                return response
            return await self._read(request, response)
        except UNREACHABLE:
            if _call(request) is None:
                return httpx2.Response(HTTPStatus.BAD_GATEWAY, request=request)
            raise
        except _Unusable as problem:
            return _answer(request, INTERNAL_ERROR, str(problem))
        except ClientError as problem:  # missing credential
            return _answer(request, CODE, str(problem), {"carried": carry(problem)})
        except httpx2.TimeoutException:
            return _answer(request, CONNECTION_CLOSED, f"{CLOSED}: the server did not respond in time")
        except httpx2.TransportError:
            return _answer(request, CONNECTION_CLOSED, f"{CLOSED} before the response was complete")

    async def _sent(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        response = await super().send(request, **options)
        if is_packed(response):
            await response.aclose()
            raise _Unusable("The response has an unrequested content encoding")
        return response

    async def _read(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return the complete response, or an error response in place of an invalid one."""
        try:
            body = await self._body(response)
        finally:
            await response.aclose()

        answered = response.is_success or response.status_code == HTTPStatus.NOT_FOUND or _is_error(response, body)
        if answered and not _knows_no_session(request, response, body):
            headers = [(name, value) for name, value in response.headers.multi_items() if name not in _FRAMING]
            return httpx2.Response(response.status_code, headers=headers, content=body, request=request)
        if _knows_no_session(request, response, body):
            # The specification requires 404 (basic/transports, session management).
            return httpx2.Response(HTTPStatus.NOT_FOUND, request=request)

        data: dict[str, Any] = {"status": response.status_code}
        if (wait := response.headers.get("Retry-After", "")).isascii() and wait.isdigit():
            data["retryAfter"] = int(wait[:9])
        phrase = HTTPStatus(response.status_code).phrase if response.status_code in _KNOWN else ""
        said = f"he server answered HTTP {response.status_code} {phrase}".rstrip()
        if response.status_code in NOT_THERE:
            return _answer(request, CONNECTION_CLOSED, f"{CLOSED}: t{said}", data)
        return _answer(request, INTERNAL_ERROR, f"T{said}", data)

    async def _body(self, response: httpx2.Response) -> bytes:
        pieces, size = [], 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > self._limit:
                raise _Unusable(f"The response is larger than {self._limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)


class _Unusable(Exception):
    """An unusable response; the text gives the reason."""


_FRAMING: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_KNOWN: Final = frozenset(HTTPStatus)


def _media_type(response: httpx2.Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def is_packed(response: httpx2.Response) -> bool:
    """Return True if the response has a content encoding that was not requested."""
    return response.headers.get("Content-Encoding", "").strip().lower() not in ENCODINGS


def _knows_no_session(request: httpx2.Request, response: httpx2.Response, body: bytes) -> bool:
    """Return True if a 400 response rejects the session.

    Servers that follow an example of the TypeScript SDK respond like this.
    """
    refused = response.status_code == HTTPStatus.BAD_REQUEST and "mcp-session-id" in request.headers
    return refused and _NO_SESSION.search(body[:4096]) is not None


_NO_SESSION: Final = re.compile(
    rb"(?i)\b(?:no|not|invalid|unknown|expired)\b[^\"]{0,40}\bsession\b|\bsession\b[^\"]{0,40}\bnot\b"
)


def _is_error(response: httpx2.Response, body: bytes) -> bool:
    """Return True if an error response contains a JSON-RPC error.

    That error is more precise than the status.
    """
    if _media_type(response) != "application/json":
        return False
    try:
        return isinstance(jsonrpc_message_adapter.validate_json(body, by_name=False), JSONRPCError)
    except ValueError:
        return False


def _call(request: httpx2.Request) -> str | int | None:
    """Return the id of the call in a request; None for a notification or a response."""
    try:
        message = json.loads(request.content)
        return message.get("id") if "method" in message else None
    except (ValueError, AttributeError, TypeError, httpx2.RequestNotRead):
        return None


def _answer(request: httpx2.Request, code: int, text: str, data: Any = None) -> httpx2.Response:
    """Build a JSON-RPC error response in place of the server's response."""
    error: dict[str, Any] = {"code": code, "message": text}
    if data is not None:
        error["data"] = data
    body = {"jsonrpc": "2.0", "id": _call(request), "error": error}
    return httpx2.Response(HTTPStatus.BAD_GATEWAY, json=body, request=request)


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the single cause in an exception group.

    The SDK's task groups wrap all errors.
    """
    found = list(leaves(group))
    for error in found:
        if isinstance(error, httpx2.TransportError):
            return ClientConnectionError(f"The server could not be reached: {reason(error)}")
    rest = [error for error in found if not (isinstance(error, MCPError) and error.code == CONNECTION_CLOSED)]
    return (rest or found)[0] if len(rest or found) == 1 else group


def reason(error: httpx2.TransportError) -> str:
    """Describe a transport error without text from the peer."""
    if isinstance(error, httpx2.TimeoutException):
        return "it did not respond in time"
    if isinstance(error, httpx2.ConnectError):
        return str(error) or "no connection"
    if isinstance(error, httpx2.ProxyError):
        return "the proxy (see HTTPS_PROXY) refused the connection"
    return type(error).__name__
