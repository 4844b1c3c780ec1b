"""ASGI app of an endpoint: the fast path beside Django, which runs no MIDDLEWARE."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import Context
from functools import partial
from typing import Any, cast

from mcp_django.protocol.headers import Headers
from mcp_django.runtime.calls.task import Flight
from mcp_django.server.ports import Principal
from mcp_django.transports.http.django_context import Surroundings
from mcp_django.transports.http.handler import Exchange
from mcp_django.transports.http.listen import Listener
from mcp_django.transports.http.messages import Reply, Request, Side, Stream
from mcp_django.transports.http.sse_body import EventStream
from mcp_django.transports.security import Pairs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
MakeRequest = Callable[[Scope, bytes, Mapping[str, Any] | None, Principal], Any]


class Door:
    """An ASGI application for one endpoint."""

    def __init__(
        self, side: Side, make_request: MakeRequest | None = None, surroundings: Surroundings | None = None
    ) -> None:
        """Wrap an endpoint.

        `make_request` builds the Django request for handlers that use it. `django_context` sets language and script
        prefix.
        """
        self._handle, self._limits, self._make_request = side.handle, side.limits, make_request
        # Only `StreamableHTTPEndpoint` returns call tasks, for which this reference is used.
        self._exchange = cast(Exchange, side)
        self._surroundings = surroundings or Surroundings()

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        headers = Headers(scope["headers"])
        oversize = self._limits.exceeded(headers)
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

        client, build, root = scope.get("client"), self._make_request, scope.get("root_path")
        context = None
        if root or self._surroundings.matters:
            context = self._surroundings.context(headers, root or "")
        outcome = await self._handle(
            Request(
                scope["method"],
                headers,
                body,
                client[0] if client else None,
                kwargs,
                None if build is None else partial(build, scope, body, kwargs),
                True,
                oversize,
                context,
                scope.get("scheme") or "http",
            )
        )

        if isinstance(outcome, Flight):
            listener = await self._fly(outcome, receive, send, context)
            if listener is not None:
                # The stream may stay open for days; release the objects of the request.
                del outcome, context, headers, body, message, build, client, scope, kwargs
                await listener.serve(receive)
        elif isinstance(outcome, Reply):
            await _respond(send, *outcome)
        else:
            await self._serve(outcome, receive, send)

    async def _rest(self, body: bytes, receive: Receive) -> bytes | None:
        """Return the whole body, or None when the client disconnected.

        A body over the limit is cut after the first bytes beyond it, which suffice to reject it.
        """
        # A list of parts would take forty times the memory if a client sends byte by byte.
        whole, more, limit = bytearray(body), True, self._limits.body
        while more and len(whole) <= limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            whole += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(whole)

    async def _fly(self, flight: Flight, receive: Receive, send: Send, context: Context | None) -> Listener | None:
        """Run a call and send its answer; return the subscription stream left to serve."""
        exchange, listener = self._exchange, _Listener(flight.disconnected, receive)
        flight.launch(context)

        try:
            landing = await flight.first(exchange.limits.upgrade_after, listener.start)
            opened = None if flight.call.connection.subscriptions is None else exchange.opened(flight, landing)
            if flight.gone:
                if opened is not None:
                    opened.subscription.cancel()
                return None
            if landing is None:
                await _stream(send, exchange.stream(flight), exchange.limits.keep_alive)
            elif opened is not None:
                return Listener(opened, send, exchange.stream_headers(flight), exchange.listeners.here())
            else:
                await _respond(send, *exchange.land(flight, landing))
            return None
        except BaseException:  # The server cancels this task, or sending failed.
            flight.disconnected()
            raise
        finally:
            flight.answered = True
            listener.stop()

    async def _serve(self, stream: Stream, receive: Receive, send: Send) -> None:
        listener = _Listener(stream.source.left, receive)
        listener.start()
        try:
            await _stream(send, stream, self._limits.keep_alive)
        finally:
            listener.stop()


class _Listener:
    """Waits for the client to disconnect, while there is a call to cancel."""

    __slots__ = ("_left", "_receive", "_task")

    def __init__(self, left: Callable[[], object], receive: Receive) -> None:
        self._left, self._receive = left, receive
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


async def _respond(send: Send, status: int, body: bytes, headers: Pairs) -> None:
    length = (b"content-length", b"%d" % len(body))
    try:
        await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await send({"type": "http.response.body", "body": body})
    except OSError:
        pass  # The client disconnected; some servers report it here.


async def _stream(send: Send, stream: Stream, keep_alive: float) -> None:
    events = EventStream(stream.source, keep_alive)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": list(stream.headers)})
        async for chunk in events:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except OSError:
        pass  # The client disconnected; some servers report it here.
    finally:
        events.end()
