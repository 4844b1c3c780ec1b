"""Session of the handshake era, as the current process holds it.

The store (`ports.SessionStore`) persists the data that must outlive the process. Running calls and pending requests to
the client live in the session object.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp_django.aio.loop_local import find_running_loop
from mcp_django.aio.tasks import call_threadsafe
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.revisions import Revision
from mcp_django.server.calls.cleanup import CleanupCallbacks
from mcp_django.server.calls.message_queue import MessageSink, Outbox


class Cancellable(Protocol):
    def cancel(self) -> object: ...

    def get_loop(self) -> asyncio.AbstractEventLoop: ...


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class ServerSession:
    """Client that sent `initialize`, with the data of its handshake."""

    key: str
    owner: str
    revision: Revision
    client_info: JSONObject
    client_capabilities: JSONObject
    log_level: str | None = None
    initialized: bool = False
    pk: Any = None
    user_id: object = None

    state: dict[str, Any] = field(default_factory=dict, init=False)
    """Scratch space for handlers; lives until this process discards the session."""
    cleanup_callbacks: CleanupCallbacks = field(default_factory=CleanupCallbacks, init=False)
    """Callbacks that run when this process discards the session."""
    in_flight: dict[jsonrpc.Id, Cancellable] = field(default_factory=dict, init=False)
    """Calls running in this process, by request id."""
    open_streams: int = field(default=0, init=False)
    """Number of session streams that the client reads in this process."""
    list_digests: dict[str, str] = field(default_factory=dict, init=False)
    """Kind of list → digest of the list last sent by this process."""
    touched_at: float = field(default=0.0, init=False)
    """Monotonic time of the last write of `last_seen`; maintained by the store."""
    _pending_responses: dict[jsonrpc.Id, "asyncio.Future[jsonrpc.Response]"] = field(default_factory=dict, init=False)
    _input_closed: bool = field(default=False, init=False)

    def __repr__(self) -> str:
        return f"<Session of {self.client_info.get('name', 'a client')}, {self.revision.version}>"

    @property
    def is_busy(self) -> bool:
        """True if this process runs a call or serves a stream of the session."""
        return bool(self.in_flight or self.open_streams)

    async def send_request(
        self, outbox: Outbox | MessageSink, id: str, method: str, params: JSONObject | None, *, timeout: float
    ) -> jsonrpc.Response:
        """Send a request on a call's stream and wait for the response of the client.

        The request is cancelled with `notifications/cancelled` on timeout or cancellation (2025-11-25,
        basic/utilities/cancellation). Raises TimeoutError after `timeout` seconds.
        """
        if self._input_closed:
            return _build_closed_response(id)
        # Create the future first: the response may arrive before `put` returns.
        future: asyncio.Future[jsonrpc.Response] = asyncio.get_running_loop().create_future()

        self._pending_responses[id] = future
        try:
            await outbox.put(jsonrpc.request(id, method, params))
            async with asyncio.timeout(timeout):
                return await future
        except (asyncio.CancelledError, TimeoutError):
            outbox.put_cancellation(jsonrpc.notification("notifications/cancelled", {"requestId": id}))
            raise
        finally:
            del self._pending_responses[id]

    def receive_response(self, response: jsonrpc.Response) -> bool:
        """Pass a response to its waiting request, on the event loop of that request.

        Only the first response to a request counts. Returns False if no request of this process waits for it.
        """
        future = self._pending_responses.get(response.id)
        if future is None:
            return False
        _run_on_loop(future.get_loop(), _set_response, future, response)
        return True

    def close_input(self) -> None:
        """Fail all pending and future requests: the client no longer sends messages."""
        self._input_closed = True
        for id in list(self._pending_responses):
            self.receive_response(_build_closed_response(id))

    def cancel(self, id: jsonrpc.Id) -> bool:
        """Cancel a running call on its event loop; False if this process has no such call."""
        running = self.in_flight.get(id)
        if running is not None:
            _cancel(running)
        return running is not None

    def cancel_all(self) -> None:
        """Cancel all running calls at the end of the session. Thread-safe."""
        for running in list(self.in_flight.values()):
            _cancel(running)

    def discard(self) -> None:
        """Discard the session and schedule its cleanup callbacks. Thread-safe."""
        self.state = {}
        self.cleanup_callbacks.schedule()


def _build_closed_response(id: jsonrpc.Id) -> jsonrpc.Response:
    return jsonrpc.Response(id, None, {"code": InternalError.code, "message": "The client has closed its sending side"})


def _cancel(running: Cancellable) -> None:
    _run_on_loop(running.get_loop(), running.cancel)


def _set_response(future: "asyncio.Future[jsonrpc.Response]", response: jsonrpc.Response) -> None:
    if not future.done():
        future.set_result(response)


def _run_on_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> None:
    # Under WSGI each request has its own loop and thread, and a server may run a loop in each thread. Tasks and futures
    # must be accessed on their own loop.
    if find_running_loop() is loop:
        function(*args)
    else:
        call_threadsafe(loop, function, *args)
