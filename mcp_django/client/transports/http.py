"""Streamable HTTP: the SDK's transport over an HTTP client that keeps to bounds.

The SDK takes any answer, of any size, and gives up the connection at the first that breaks off. Here an answer that is
too large, late, cut, or no message at all is an error of the call that it was for. Only a server that cannot be reached
any more ends the connection. Redirects are followed within the origin only, by the SDK; what it asks the redirected URL
for is what it asked the first one for, credentials included.
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
"""What a piece of an answer may be packed with: others can make gigabytes of one."""
CLOSED: Final = "Connection closed"
"""The SDK's words for a connection that ended; whoever reads its errors takes them for that."""
NOT_THERE: Final = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
"""What a proxy says of a server that is down or starts anew; servers of MCP put an error of JSON-RPC with it."""
UNREACHABLE: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)


@asynccontextmanager
async def open_streamable_http(target: StreamableHTTP) -> AsyncIterator[Streams]:
    """The streams of a connection. Raises ClientConnectionError when the server cannot be reached any more."""
    try:
        async with Answers(target) as client:
            streams = streamable_http_client(target.url, http_client=client, max_sse_event_size=target.max_message_size)
            async with streams as (reader, writer):
                yield reader, writer
    except BaseExceptionGroup as group:
        raise _cause(group) from group


def http_client_settings(target: StreamableHTTP | SSE) -> dict[str, Any]:
    """What an `httpx2.AsyncClient` for a target is made with."""
    shorten_urls()
    connect, read = target.connect_timeout, target.read_timeout
    settings: dict[str, Any] = {
        "headers": {"Accept-Encoding": "gzip, deflate", **target.headers},
        "auth": target.auth,
        "timeout": httpx2.Timeout(connect, read=read),
        # As many streams as there are calls: a bound here would make calls wait for each other.
        "limits": httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        "trust_env": target.environment_proxies,
        "transport": target.transport,
    }
    if target.ssl_context is not None:
        settings["verify"] = target.ssl_context
    return settings


class Answers(httpx2.AsyncClient):
    """An HTTP client whose answers to calls can be read, whatever the server did."""

    def __init__(self, target: StreamableHTTP | SSE) -> None:
        super().__init__(**http_client_settings(target))
        self._limit = target.max_message_size

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """As `httpx2.AsyncClient.send`. A POST fails only where the server cannot be reached."""
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
        except ClientError as problem:  # there is no credential
            return _answer(request, CODE, str(problem), {"carried": carry(problem)})
        except httpx2.TimeoutException:
            return _answer(request, CONNECTION_CLOSED, f"{CLOSED}: the server did not answer in time")
        except httpx2.TransportError:
            return _answer(request, CONNECTION_CLOSED, f"{CLOSED} before the answer was complete")

    async def _sent(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        response = await super().send(request, **options)
        if is_packed(response):
            await response.aclose()
            raise _Unusable("The server's answer is packed in a way that was not offered")
        return response

    async def _read(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """The answer in full, or one in its place when it is none."""
        try:
            body = await self._body(response)
        finally:
            await response.aclose()
        answered = response.is_success or response.status_code == HTTPStatus.NOT_FOUND or _is_error(response, body)
        if answered and not _knows_no_session(request, response, body):
            headers = [(name, value) for name, value in response.headers.multi_items() if name not in _FRAMING]
            return httpx2.Response(response.status_code, headers=headers, content=body, request=request)
        if _knows_no_session(request, response, body):
            # As the specification has it (basic/transports, session management).
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
                raise _Unusable(f"The server's answer is larger than {self._limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)


class _Unusable(Exception):
    """An answer that cannot be used; the text says why."""


_FRAMING: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_KNOWN: Final = frozenset(HTTPStatus)


def _media_type(response: httpx2.Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def is_packed(response: httpx2.Response) -> bool:
    """Whether an answer is packed in another way than was offered."""
    return response.headers.get("Content-Encoding", "").strip().lower() not in ENCODINGS


def _knows_no_session(request: httpx2.Request, response: httpx2.Response, body: bytes) -> bool:
    """Does it refuse the session, with the 400 that servers give which follow an example of the TypeScript SDK?"""
    refused = response.status_code == HTTPStatus.BAD_REQUEST and "mcp-session-id" in request.headers
    return refused and _NO_SESSION.search(body[:4096]) is not None


_NO_SESSION: Final = re.compile(
    rb"(?i)\b(?:no|not|invalid|unknown|expired)\b[^\"]{0,40}\bsession\b|\bsession\b[^\"]{0,40}\bnot\b"
)


def _is_error(response: httpx2.Response, body: bytes) -> bool:
    """Whether the body of a refusal is an error of JSON-RPC, which says more than the status."""
    if _media_type(response) != "application/json":
        return False
    try:
        return isinstance(jsonrpc_message_adapter.validate_json(body, by_name=False), JSONRPCError)
    except ValueError:
        return False


def _call(request: httpx2.Request) -> str | int | None:
    """The id of the call that a request holds; None for a notification or an answer."""
    try:
        message = json.loads(request.content)
        return message.get("id") if "method" in message else None
    except (ValueError, AttributeError, TypeError, httpx2.RequestNotRead):
        return None


def _answer(request: httpx2.Request, code: int, text: str, data: Any = None) -> httpx2.Response:
    """An answer in place of the server's: an error of JSON-RPC."""
    error: dict[str, Any] = {"code": code, "message": text}
    if data is not None:
        error["data"] = data
    body = {"jsonrpc": "2.0", "id": _call(request), "error": error}
    return httpx2.Response(HTTPStatus.BAD_GATEWAY, json=body, request=request)


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that a group stands for: the SDK's task groups wrap whatever passes through them."""
    found = list(leaves(group))
    for error in found:
        if isinstance(error, httpx2.TransportError):
            return ClientConnectionError(f"The server could not be reached: {reason(error)}")
    rest = [error for error in found if not (isinstance(error, MCPError) and error.code == CONNECTION_CLOSED)]
    return (rest or found)[0] if len(rest or found) == 1 else group


def reason(error: httpx2.TransportError) -> str:
    """What went wrong on the way, without a peer's own words."""
    if isinstance(error, httpx2.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx2.ConnectError):
        return str(error) or "no connection"
    if isinstance(error, httpx2.ProxyError):
        return "the proxy (see HTTPS_PROXY) let nothing through"
    return type(error).__name__
