"""WebSocket: one JSON-RPC message in each text frame, both eras by message, on a channel that ends with its socket.

The revisions define no WebSocket; what holds here is what they ask of every transport, and `docs/topics/websocket.md`.
The order at the handshake: Host and Origin, subprotocol, credential, room, and only then is the socket accepted.
What is refused before gets the HTTP answer that the endpoint would give, where the server can send one (the ASGI
extension `websocket.http.response`); other servers say 403.
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
"""Below the endpoint's own path."""
SUBPROTOCOL: Final = "mcp"
BEARER: Final = "mcp.bearer."
"""What stands before a token that is sent as a subprotocol: pages cannot set headers of a handshake."""
PRIVATE: Final = 4000
"""The first of the close codes that are for private use."""
DENIAL: Final = "websocket.http.response"
NO_SOCKET: Final = b"There is no WebSocket here."
SILENCE: Final = 24 * 3600.0
"""Seconds; the servers keep a silent connection open, or the channel does."""
FLUSH: Final = 5.0
"""Seconds for the last messages of a channel that is over, and for nothing but the close frame:"""
LAST_WORDS: Final = 1.0

logger = logging.getLogger("mcp_django.server")

CLOSES: Mapping[Ending, tuple[int, str]] = {
    Ending.CLOSING: (1001, "The server is shutting down"),
    Ending.DEAD: (1001, "No answer to pings"),
    Ending.BINARY: (1003, "Send messages as text frames"),
    Ending.OVERSIZE: (1009, "The message is too large"),
    Ending.BEHIND: (1013, "Messages were not read in time"),
    Ending.FLOOD: (1013, "Too many messages; try again later"),
    Ending.REVOKED: (4401, "The credential is not good any more"),
    Ending.FORBIDDEN: (4403, "The credential is not good for as much any more"),
    Ending.OVER: (4404, "The session is over"),
}
"""Code and reason of the close frame: RFC 6455, section 7.4, and 4000 and up for what the transport defines."""


class Handshake(NamedTuple):
    """What a client sent to open its socket, read."""

    scope: Scope
    """With a token that came as a subprotocol as an Authorization header."""
    headers: Headers
    subprotocol: str | None
    """The one to select."""


def read_handshake(scope: Scope) -> Handshake:
    """Raises TransportRefusal (400) for subprotocols that are not ours, and for more than one token."""
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
        raise TransportRefusal(400, body=b'The subprotocol here is "mcp"; offer it, or none.')
    return Handshake(scope, Headers(pairs), None)


def _offered(scope: Scope, pairs: list[tuple[bytes, bytes]]) -> list[str]:
    """The subprotocols that the client offers: as it wrote them, where the server leaves the header in. Daphne decodes
    percent signs in its list, uvicorn with wsproto has the list only.
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
    """The WebSocket side of one server."""

    def __init__(self, duplexes: Duplexes, make_request: RequestMaker, surroundings: Surroundings) -> None:
        """`make_request` builds the Django request that handlers may ask for; `surroundings` are what they find
        around them.
        """
        self._duplexes, self._make_request, self._surroundings = duplexes, make_request, surroundings
        self.limits = duplexes.limits

    async def open(self, scope: Scope) -> tuple[Duplex, str | None]:
        """The channel of a socket that may be accepted, and the subprotocol to select. Raises TransportRefusal."""
        try:
            return await self._open(scope)
        except Overloaded as problem:
            raise _busy(problem) from None
        except Error:
            logger.exception("The database failed a socket before it was accepted")
            raise _busy(Overloaded("The database does not answer; try again later")) from None

    async def _open(self, scope: Scope) -> tuple[Duplex, str | None]:
        duplexes = self._duplexes
        if "websocket" not in duplexes.transports:
            raise TransportRefusal(404, body=NO_SOCKET)  # whatever route led here
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
    """The handshake as the GET that it is (RFC 6455, section 4.1)."""
    return {**scope, "type": "http", "method": "GET", "scheme": _scheme(scope)}


def _scheme(scope: Scope) -> str:
    return "https" if scope.get("scheme") == "wss" else "http"


def get_sockets(alias: str = "default") -> Sockets:
    """The WebSocket side of the server of an alias."""
    return _make_sockets(alias)


@functools.cache
def _make_sockets(alias: str) -> Sockets:
    return _sockets(get_duplexes(alias), alias, conf.get_settings().servers[alias].path)


def build_sockets(server: Server, path: str) -> Sockets:
    """The WebSocket side of any server, also of one built by hand, whose endpoint is at `path`."""
    return _sockets(build_duplexes(server), server.alias, path)


def _sockets(duplexes: Duplexes, alias: str, path: str) -> Sockets:
    make_request = RequestMaker(Consumer, alias=alias, route=f"{path}/{PATH}")
    return Sockets(duplexes, make_request, Surroundings())


class Consumer(AsyncConsumer):  # type: ignore[misc]  # Channels has no types
    """One socket. `Consumer.as_asgi(server="default")` is an ASGI application for a route of Channels' URLRouter."""

    def __init__(self, server: str = "default", *, sockets: Sockets | None = None) -> None:
        """`sockets` are those of a server that is not in the setting."""
        self._server, self._sockets = server, sockets

    # Not the dispatch of the base class: it takes one message at a time, a thread's turn before each (its
    # `aclose_old_connections`), and a name in the channel layer that nobody would send to.
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the socket to its end."""
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
    """A socket that was accepted, and its channel."""

    def __init__(self, duplex: Duplex, receive: Receive, send: Send, most: int) -> None:
        """A message may have `most` bytes."""
        self._duplex, self._receive, self._send, self._most = duplex, receive, send, most
        self._ahead = ReadAhead(duplex, most)
        self._time: asyncio.Timeout | None = None
        """What the writer has for sending, once the channel is over."""
        duplex.on_end = self._hurry

    async def run(self) -> None:
        """Carry messages both ways until the channel or the socket is at its end."""
        tasks = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            # The server ends us, and would say 1011, which is for bugs.
            tasks[1].cancel()
            await self._say(CLOSES[Ending.CLOSING])
            raise
        finally:
            self._duplex.on_end = None
            for task in tasks:
                task.cancel()
            self._ahead.stop()

    async def _read(self) -> None:
        """Take frames until the client is gone. Waits for no call."""
        duplex, most = self._duplex, self._most
        while (message := await self._next())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                duplex.end(Ending.BINARY)
            elif len(text) > most or len(body := text.encode("utf-8", "surrogatepass")) > most:
                duplex.end(Ending.OVERSIZE)
            else:
                await self._ahead.take(body)
            # Thousands of frames may be there at once: let those before run, and other connections live.
            await asyncio.sleep(0)
        duplex.end(Ending.GONE)

    async def _next(self) -> MutableMapping[str, Any]:
        try:
            return await self._receive()
        except Exception as problem:
            logger.debug("A socket is gone: %s", type(problem).__name__)
            return {"type": "websocket.disconnect"}

    async def _write(self) -> None:
        """Send what the channel has, and at its end why it is over."""
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
            pass  # the client does not read on
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
        """The channel is over: what waits may be sent, if the client takes it."""
        ending, time = self._duplex.ending, self._time
        if time is not None and ending is not None:
            flush = ending.sends_rest and ending is not Ending.CLOSING
            time.reschedule(asyncio.get_running_loop().time() + (FLUSH if flush else LAST_WORDS))


async def _sent(send: Send, message: dict[str, Any]) -> bool:
    """Send it. False when the socket is gone, which each server says in its own way: uvicorn raises an OSError, or a
    RuntimeError after it has closed the socket itself.
    """
    try:
        await send(message)
    except Exception as problem:
        logger.debug("A socket is gone: %s", type(problem).__name__)
        return False
    return True


async def _close(send: Send, code: int, reason: str) -> None:
    if not await _sent(send, {"type": "websocket.close", "code": code, "reason": reason}) and code < PRIVATE:
        # Daphne sends 1000 and what is private, and raises for the rest (autobahn/websocket/protocol.py, sendClose).
        await _sent(send, {"type": "websocket.close", "code": code - 1000 + PRIVATE, "reason": reason})


async def deny(scope: Scope, send: Send, refusal: TransportRefusal) -> None:
    """Refuse a socket that was not accepted."""
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
        # Uvicorn closes the connection at its next turn, and until then logs an error for an application that returns
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
