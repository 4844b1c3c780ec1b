"""ASGI app of an endpoint: the fast path beside Django, which runs no MIDDLEWARE."""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Any

from mcp_django.protocol.headers import Headers
from mcp_django.runtime.calls.task import CallTask
from mcp_django.server.ports import Principal
from mcp_django.transports.http.django_context import DjangoContext
from mcp_django.transports.http.endpoint import HTTPEndpoint
from mcp_django.transports.http.handler import StreamableHTTPEndpoint
from mcp_django.transports.http.listen import ListenStream, OpenedSubscription
from mcp_django.transports.http.messages import HTTPReply, HTTPRequest, HTTPStream, Receive, Scope, Send
from mcp_django.transports.http.sse_body import SSEBody

DjangoRequestBuilder = Callable[[Scope, bytes, Mapping[str, Any] | None, Principal], Any]


class StreamableHTTPApp:
    """An ASGI application for one endpoint."""

    def __init__(
        self,
        endpoint: HTTPEndpoint,
        make_request: DjangoRequestBuilder | None = None,
        django_context: DjangoContext | None = None,
    ) -> None:
        """Wrap an endpoint.

        `make_request` builds the Django request for handlers that use it. `django_context` sets language and script
        prefix.
        """
        self._endpoint = endpoint
        self._make_request = make_request
        self._django_context = django_context or DjangoContext()

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        headers = Headers(scope["headers"])
        oversize = self._endpoint.is_oversize(headers)
        body = b""
        if not oversize:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body = message.get("body", b"")
            if message.get("more_body"):
                whole = await self._read_rest(body, receive)
                if whole is None:
                    return
                body = whole

        build, root = self._make_request, scope.get("root_path")
        context = None
        if root or self._django_context.is_needed:
            context = self._django_context.create_context(headers, root or "")
        request = HTTPRequest.from_scope(
            scope,
            headers,
            body,
            kwargs,
            is_oversize=oversize,
            make_request=None if build is None else partial(build, scope, body, kwargs),
            context=context,
        )
        outcome = await self._endpoint.handle(request)

        if isinstance(outcome, CallTask):
            listener = await self._run_call(outcome, receive, send, context)
            if listener is not None:
                # The stream may stay open for days; release the objects of the request.
                del outcome, context, request, headers, body, message, build, scope, kwargs
                await listener.serve(receive)
        elif isinstance(outcome, HTTPReply):
            await _respond(send, outcome)
        else:
            await self._send_stream(outcome, receive, send)

    async def _read_rest(self, body: bytes, receive: Receive) -> bytes | None:
        """Return the whole body, or None when the client disconnected.

        A body over the limit is cut after the first bytes beyond it, which suffice to reject it.
        """
        # A list of parts would take forty times the memory if a client sends byte by byte.
        content, more, limit = bytearray(body), True, self._endpoint.limits.body
        while more and len(content) <= limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            content += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(content)

    async def _run_call(
        self, task: CallTask, receive: Receive, send: Send, context: Context | None
    ) -> ListenStream | None:
        """Run a call and send its answer; return the subscription stream left to serve."""
        endpoint = self._endpoint
        assert isinstance(endpoint, StreamableHTTPEndpoint)  # Only this endpoint returns call tasks.
        limits, disconnect_listener = endpoint.limits, _DisconnectListener(task.on_disconnect, receive)
        task.start(context)

        try:
            result = await task.wait_for_output(limits.sse_upgrade_after, disconnect_listener.start)
            if task.is_disconnected:
                for subscription in tuple((task.call.connection.subscriptions or {}).values()):
                    subscription.cancel()
                return None

            answer = endpoint.build_answer(task, result)
            if isinstance(answer, OpenedSubscription):
                return ListenStream(answer, send, endpoint.open_streams.get_loop_registry())
            if isinstance(answer, HTTPReply):
                await _respond(send, answer)
            else:
                await _send_events(send, answer, limits.keep_alive)
            return None
        except BaseException:  # The server cancels this task, or sending failed.
            task.on_disconnect()
            raise
        finally:
            task.is_answered = True
            disconnect_listener.stop()

    async def _send_stream(self, stream: HTTPStream, receive: Receive, send: Send) -> None:
        disconnect_listener = _DisconnectListener(stream.source.close, receive)
        disconnect_listener.start()
        try:
            await _send_events(send, stream, self._endpoint.limits.keep_alive)
        finally:
            disconnect_listener.stop()


class _DisconnectListener:
    """Waits for the client to disconnect, while there is a call to cancel."""

    __slots__ = ("_on_disconnect", "_receive", "_task")

    def __init__(self, on_disconnect: Callable[[], object], receive: Receive) -> None:
        self._on_disconnect = on_disconnect
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._on_disconnect()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


async def _respond(send: Send, reply: HTTPReply) -> None:
    length = (b"content-length", b"%d" % len(reply.body))
    try:
        await send_reply(send, reply, length)
    except OSError:
        pass  # The client disconnected; some servers report it here.


async def send_reply(send: Send, reply: HTTPReply, *headers: tuple[bytes, bytes]) -> None:
    """Send a reply with its headers as they are, after the given ones."""
    await send({"type": "http.response.start", "status": reply.status, "headers": [*headers, *reply.headers]})
    await send({"type": "http.response.body", "body": reply.body})


async def _send_events(send: Send, stream: HTTPStream, keep_alive: float) -> None:
    events = SSEBody(stream.source, keep_alive)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": list(stream.headers)})
        async for chunk in events:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except OSError:
        pass  # The client disconnected; some servers report it here.
    finally:
        events.finish()
