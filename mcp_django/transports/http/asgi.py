"""The ASGI door: beside Django, not through it. The fast path; it runs no MIDDLEWARE."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

from ...protocol.headers import Headers
from ...runtime.calls import Flight
from ...server.ports import Principal
from ..guards import Pairs
from .exchange import Exchange, Reply, Request
from .stream import EventStream

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
MakeRequest = Callable[[Scope, bytes, Principal], Any]


class Door:
    """An ASGI application for one endpoint."""

    def __init__(self, exchange: Exchange, make_request: MakeRequest | None = None) -> None:
        """`make_request` builds the Django request that handlers may ask for."""
        self._exchange, self._make_request = exchange, make_request

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        headers = Headers(scope["headers"])
        oversize = self._exchange.declares_too_much(headers)
        body = b""
        if not oversize:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body = message.get("body", b"")
            if message.get("more_body"):
                whole = await self._rest(body, receive)
                if whole is None:
                    return
                body = whole
        client, build = scope.get("client"), self._make_request
        outcome = await self._exchange.handle(
            Request(
                scope["method"],
                headers,
                body,
                client[0] if client else None,
                kwargs,
                None if build is None else partial(build, scope, body),
                True,
                oversize,
            )
        )
        if isinstance(outcome, Reply):
            await _respond(send, *outcome)
        else:
            await self._fly(outcome, receive, send)

    async def _rest(self, body: bytes, receive: Receive) -> bytes | None:
        """The whole body, or the first bytes beyond the limit, which is enough to refuse it; None when the client
        went away.
        """
        parts, size, more, limit = [body], len(body), True, self._exchange.limits.body
        while more and size <= limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _fly(self, flight: Flight, receive: Receive, send: Send) -> None:
        exchange, listener = self._exchange, _Listener(flight, receive)
        flight.launch()
        try:
            landing = await flight.first(exchange.limits.upgrade_after, listener.start)
            if flight.gone:
                return
            if landing is None:
                await _stream(send, exchange.stream_headers(flight), EventStream(flight, exchange.limits.keep_alive))
            else:
                await _respond(send, *exchange.land(flight, landing))
        except asyncio.CancelledError:  # the server ends us
            flight.disconnected()
            raise
        finally:
            listener.stop()


class _Listener:
    """Waits for the client to go away. Started only while a call is in the air."""

    __slots__ = ("_flight", "_receive", "_task")

    def __init__(self, flight: Flight, receive: Receive) -> None:
        self._flight, self._receive = flight, receive
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._flight.disconnected()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


async def _respond(send: Send, status: int, body: bytes, headers: Pairs) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def _stream(send: Send, headers: Pairs, events: EventStream) -> None:
    try:
        await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
        async for chunk in events:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except OSError:  # the client is gone; some servers say so here
        events.close()
