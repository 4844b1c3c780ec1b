"""WebSocket transport: one JSON-RPC message per text frame, for both eras.

The revisions define no WebSocket. This module follows their rules for all transports, and `docs/topics/websocket.md`.
The handshake checks, in this order: Host and Origin, subprotocol, credential, capacity. Only then is the socket
accepted. A rejected handshake gets the HTTP answer of the endpoint if the server can send one (ASGI extension
`websocket.http.response`), and 403 otherwise.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

from channels.consumer import AsyncConsumer
from django.core.signals import setting_changed
from django.db import Error
from django.dispatch import receiver
from django.http import HttpRequest

from mcp_django import conf
from mcp_django.auth.authentication.challenges import challenge
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.throttling.checks import admit_address
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidRequest, TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.server import Server
from mcp_django.transports.connection.connection import Duplex
from mcp_django.transports.connection.inbound_queue import ReadAhead
from mcp_django.transports.connection.options import Ending, Terms
from mcp_django.transports.connection.registry import Duplexes
from mcp_django.transports.credentials import Credential
from mcp_django.transports.factory import build_duplexes, get_duplexes
from mcp_django.transports.http.django_context import Surroundings
from mcp_django.transports.http.django_request import RequestMaker
from mcp_django.transports.security import Pairs
from mcp_django.wiring import lifecycle

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PATH: Final = "ws"
"""Path below the path of the endpoint."""
SUBPROTOCOL: Final = "mcp"
BEARER: Final = "mcp.bearer."
"""Prefix of a token sent as a subprotocol; pages cannot set handshake headers."""
PRIVATE: Final = 4000
"""First close code for private use."""
DENIAL: Final = "websocket.http.response"
NO_SOCKET: Final = b"This URL serves no WebSocket."
SILENCE: Final = 24 * 3600.0
"""Seconds that one read waits; servers or pings keep a silent connection open."""
FLUSH: Final = 5.0
"""Seconds to send the pending messages of an ended connection."""
LAST_WORDS: Final = 1.0

logger = logging.getLogger("mcp_django.server")

CLOSES: Mapping[Ending, tuple[int, str]] = {
    Ending.CLOSING: (1001, "The server is shutting down"),
    Ending.DEAD: (1001, "No answer to pings"),
    Ending.BINARY: (1003, "Send messages as text frames"),
    Ending.OVERSIZE: (1009, "The message is too large"),
    Ending.BEHIND: (1013, "Messages were not read in time"),
    Ending.FLOOD: (1013, "Too many messages; try again later"),
    Ending.REVOKED: (4401, "The credential has expired or was revoked"),
    Ending.FORBIDDEN: (4403, "The credential has lost rights"),
    Ending.OVER: (4404, "The session has ended"),
}
"""Code and reason of the close frame: RFC 6455, section 7.4; 4000 and up private."""


class Handshake(NamedTuple):
    """The parsed handshake request of a client."""

    scope: Scope
    """ASGI scope; a token sent as a subprotocol is an Authorization header here."""
    headers: Headers
    subprotocol: str | None
    """Subprotocol to select; None if the client offered none."""


def read_handshake(scope: Scope) -> Handshake:
    """Parse a handshake.

    Raises:
        TransportRefusal: 400 for unsupported subprotocols and for more than one token.
    """
    pairs: list[tuple[bytes, bytes]] = list(scope["headers"])
    offered = _offered(scope, pairs)
    tokens = [name.removeprefix(BEARER) for name in offered if name.startswith(BEARER)]
    if tokens:
        if len(tokens) > 1 or any(name == b"authorization" for name, _ in pairs):
            raise _invalid("Send one token: in the Authorization header, or as a subprotocol")
        offered = [name for name in offered if not name.startswith(BEARER)]
        pairs = [pair for pair in pairs if pair[0] != b"sec-websocket-protocol"]
        pairs += [
            (b"sec-websocket-protocol", ", ".join(offered).encode("latin-1")),
            (b"authorization", b"Bearer " + tokens[0].encode("latin-1")),
        ]
        scope = {**scope, "headers": pairs, "subprotocols": offered}
    if SUBPROTOCOL in offered:
        return Handshake(scope, Headers(pairs), SUBPROTOCOL)
    if offered or tokens:
        raise TransportRefusal(400, body=b'Unsupported subprotocol; offer "mcp" or none.')

    return Handshake(scope, Headers(pairs), None)


def _offered(scope: Scope, pairs: list[tuple[bytes, bytes]]) -> list[str]:
    """Return the offered subprotocols, as the client wrote them if possible.

    Daphne decodes percent signs in its list, and uvicorn with wsproto provides only the list.
    """
    values = [value.decode("latin-1") for name, value in pairs if name == b"sec-websocket-protocol"]
    if not values:
        return list(scope.get("subprotocols") or ())
    return [name for value in values for part in value.split(",") if (name := part.strip())]


def _invalid(text: str) -> TransportRefusal:
    headers = [
        (b"content-type", b"application/json"),
        (b"www-authenticate", challenge(error="invalid_request", description=text)),
    ]
    return TransportRefusal(400, headers, jsonrpc.error(None, InvalidRequest(text)))


class Sockets:
    """Accepts the WebSockets of one server."""

    def __init__(self, duplexes: Duplexes, make_request: RequestMaker, surroundings: Surroundings) -> None:
        """Wrap a connection registry.

        `make_request` builds the Django request for handlers that use it. `django_context` sets language and script
        prefix.
        """
        self._duplexes, self._make_request, self._surroundings = duplexes, make_request, surroundings
        self.limits = duplexes.limits

    async def open(self, scope: Scope) -> tuple[Duplex, str | None]:
        """Return the connection and the subprotocol. Raises TransportRefusal."""
        try:
            return await self._open(scope)
        except Overloaded as problem:
            raise _busy(problem) from None
        except Error:
            logger.exception("Database error before a WebSocket was accepted")
            raise _busy(Overloaded("The database does not answer; try again later")) from None

    async def _open(self, scope: Scope) -> tuple[Duplex, str | None]:
        duplexes = self._duplexes
        if "websocket" not in duplexes.transports:
            # Reached by a route of the project although the transport is disabled.
            raise TransportRefusal(404, body=NO_SOCKET)
        duplexes.guard.check(Headers(scope["headers"]))
        scope, headers, subprotocol = read_handshake(scope)
        client = scope.get("client")
        kwargs = scope.get("url_route", {}).get("kwargs")
        query = scope.get("query_string") or b""
        asked = AuthRequest(headers, client[0] if client else None, "GET", kwargs, _scheme(scope), query, True)
        await admit_address(asked, duplexes.executor)
        if query:
            asked = await duplexes.authenticator.redeemed(asked)
        principal = duplexes.authenticator.known(asked)
        if principal is None:
            principal = await duplexes.authenticator.admit(asked)

        def make_request(principal: Principal) -> HttpRequest:
            return self._make_request(_as_http(scope), b"", kwargs, principal)

        context, root = None, scope.get("root_path")
        if root or self._surroundings.matters:
            context = self._surroundings.context(headers, root or "")
        terms = Terms(
            credential=Credential.of(principal, duplexes.authenticator, asked),
            headers=headers,
            kwargs=kwargs,
            make_request=make_request,
            context=context,
            pings=True,
        )
        return duplexes.open(principal, terms), subprotocol


def _as_http(scope: Scope) -> Scope:
    """Return the scope of the handshake as a GET request (RFC 6455, section 4.1)."""
    return {**scope, "type": "http", "method": "GET", "scheme": _scheme(scope)}


def _scheme(scope: Scope) -> str:
    return "https" if scope.get("scheme") == "wss" else "http"


def get_sockets(alias: str = "default") -> Sockets:
    """Return the WebSocket acceptor of a server alias."""
    return _make_sockets(alias)


@functools.cache
def _make_sockets(alias: str) -> Sockets:
    return _sockets(get_duplexes(alias), alias, conf.get_settings().servers[alias].path)


def build_sockets(server: Server, path: str) -> Sockets:
    """Build the WebSocket acceptor of a server with its endpoint at `path`.

    The server may be built by hand, without an entry in the settings.
    """
    return _sockets(build_duplexes(server), server.alias, path)


def _sockets(duplexes: Duplexes, alias: str, path: str) -> Sockets:
    make_request = RequestMaker(Consumer, alias=alias, route=f"{path}/{PATH}")
    return Sockets(duplexes, make_request, Surroundings())


class Consumer(AsyncConsumer):  # type: ignore[misc]  # Channels has no types
    """A WebSocket; `Consumer.as_asgi(server="default")` is an app for URLRouter."""

    def __init__(self, server: str = "default", *, sockets: Sockets | None = None) -> None:
        """Select the server by alias, or by `acceptor` for a server outside the settings."""
        self._server, self._sockets = server, sockets

    # The dispatch of the base class is not used. It handles one message at a time, with a thread switch before each
    # (`aclose_old_connections`), and joins the channel layer without need.
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the WebSocket until it closes."""
        sockets = self._sockets or get_sockets(self._server)
        if (await receive())["type"] != "websocket.connect":
            return
        try:
            duplex, subprotocol = await sockets.open(scope)
        except TransportRefusal as refusal:
            await deny(scope, send, refusal)
            return

        release = lifecycle().shield()
        try:
            if await _sent(send, {"type": "websocket.accept", "subprotocol": subprotocol}):
                await _Socket(duplex, receive, send, sockets.limits.body).run()
        finally:
            try:
                await duplex.close()
            finally:
                release()


class _Socket:
    """An accepted WebSocket and its connection."""

    def __init__(self, duplex: Duplex, receive: Receive, send: Send, most: int) -> None:
        """Limit messages to `max_message_bytes` bytes."""
        self._duplex, self._receive, self._send, self._most = duplex, receive, send, most
        self._ahead = ReadAhead(duplex, most)
        self._time: asyncio.Timeout | None = None
        """Deadline of the sending task after the connection has ended."""
        duplex.on_end = self._hurry

    async def run(self) -> None:
        """Transfer messages in both directions until the connection or the socket ends."""
        tasks = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            # The server cancels this task, and would send 1011, the code for bugs.
            tasks[1].cancel()
            await self._say(CLOSES[Ending.CLOSING])
            raise
        finally:
            self._duplex.on_end = None
            for task in tasks:
                task.cancel()
            self._ahead.stop()

    async def _read(self) -> None:
        """Receive frames until the client disconnects, without waiting for calls."""
        duplex, most = self._duplex, self._most
        while (message := await self._next())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                duplex.end(Ending.BINARY)
            elif len(text) > most or len(body := text.encode("utf-8", "surrogatepass")) > most:
                duplex.end(Ending.OVERSIZE)
            else:
                await self._ahead.take(body)
            # Thousands of frames may be available at once: let earlier messages and other connections run.
            await asyncio.sleep(0)
        duplex.end(Ending.GONE)

    async def _next(self) -> MutableMapping[str, Any]:
        try:
            return await self._receive()
        except Exception as problem:
            logger.debug("A WebSocket has disconnected: %s", type(problem).__name__)
            return {"type": "websocket.disconnect"}

    async def _write(self) -> None:
        """Send messages of the connection, and at its end the close frame."""
        duplex = self._duplex
        try:
            async with asyncio.timeout(None) as self._time:
                if duplex.is_over():
                    self._hurry()
                while (messages := await duplex.read(SILENCE)) is not None:
                    for body in messages:
                        if not await _sent(self._send, {"type": "websocket.send", "text": body.decode()}):
                            duplex.end(Ending.GONE)
                            return
        except TimeoutError:
            pass  # The client does not read.
        finally:
            self._time = None

        why = None if duplex.ending is None else CLOSES.get(duplex.ending)
        if why is not None:
            await self._say(why)

    async def _say(self, why: tuple[int, str]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await _close(self._send, *why)

    def _hurry(self) -> None:
        """Limit the time to send pending messages after the connection has ended."""
        ending, time = self._duplex.ending, self._time
        if time is not None and ending is not None:
            flush = ending.sends_rest and ending is not Ending.CLOSING
            time.reschedule(asyncio.get_running_loop().time() + (FLUSH if flush else LAST_WORDS))


async def _sent(send: Send, message: dict[str, Any]) -> bool:
    """Send an event; return False if the socket is closed.

    Each server reports that in its own way: uvicorn raises an OSError, or a RuntimeError after it has closed the socket
    itself.
    """
    try:
        await send(message)
    except Exception as problem:
        logger.debug("A WebSocket has disconnected: %s", type(problem).__name__)
        return False
    return True


async def _close(send: Send, code: int, reason: str) -> None:
    if not await _sent(send, {"type": "websocket.close", "code": code, "reason": reason}) and code < PRIVATE:
        # Daphne sends only 1000 and private codes, and raises for other codes (autobahn/websocket/protocol.py,
        # sendClose).
        await _sent(send, {"type": "websocket.close", "code": code - 1000 + PRIVATE, "reason": reason})


async def deny(scope: Scope, send: Send, refusal: TransportRefusal) -> None:
    """Reject a WebSocket before it is accepted."""
    if DENIAL not in (scope.get("extensions") or {}):
        await _sent(send, {"type": "websocket.close"})
        return

    said = {name for name, _ in refusal.headers}
    headers = [
        (b"content-length", b"%d" % len(refusal.body)),
        *([] if b"content-type" in said else [(b"content-type", b"text/plain; charset=utf-8")]),
        *([] if b"cache-control" in said else [(b"cache-control", b"no-store")]),
        *refusal.headers,
    ]
    if await _sent(send, {"type": f"{DENIAL}.start", "status": refusal.status, "headers": headers}):
        await _sent(send, {"type": f"{DENIAL}.body", "body": refusal.body})
        # Uvicorn closes the connection at its next turn, and until then logs an error if the application returns
        # (uvicorn/protocols/websockets/websockets_sansio_impl.py, run_asgi).
        await asyncio.sleep(0)


def _busy(problem: Overloaded) -> TransportRefusal:
    headers: Pairs = (
        (b"content-type", b"application/json"),
        (b"retry-after", b"%d" % max(1, round(problem.retry_after))),
    )
    return TransportRefusal(problem.status, headers, jsonrpc.error(None, InternalError(str(problem))))


@receiver(setting_changed)
def _forget(**kwargs: Any) -> None:
    _make_sockets.cache_clear()
