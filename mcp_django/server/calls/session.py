"""Session of the handshake era, as the current process holds it.

The store (`ports.SessionStore`) persists the data that must outlive the process. Running calls and pending requests to
the client live in the session object.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError
from mcp_django.protocol.revisions import Revision
from mcp_django.server.calls.cleanup import Farewells
from mcp_django.server.ports import Interactive


class Cancellable(Protocol):
    def cancel(self) -> object: ...

    def get_loop(self) -> asyncio.AbstractEventLoop: ...


class Session:
    """Client that sent `initialize`, with the data of its handshake."""

    __slots__ = (
        "_asked",
        "_silent",
        "client_capabilities",
        "client_info",
        "farewells",
        "in_flight",
        "initialized",
        "key",
        "lists",
        "log_level",
        "owner",
        "pk",
        "revision",
        "state",
        "streams",
        "touched",
        "user_id",
    )

    def __init__(
        self,
        *,
        key: str,
        owner: str,
        revision: Revision,
        client_info: dict[str, Any],
        client_capabilities: dict[str, Any],
        log_level: str | None = None,
        initialized: bool = False,
        pk: Any = None,
        user_id: Any = None,
    ) -> None:
        self.key, self.owner, self.revision = key, owner, revision
        self.client_info, self.client_capabilities = client_info, client_capabilities
        self.log_level, self.initialized = log_level, initialized
        self.pk, self.user_id = pk, user_id

        self.state: dict[str, Any] = {}
        """Scratch space for handlers; lives until this process discards the session."""
        self.farewells = Farewells()
        """Callbacks that run when this process discards the session."""
        self.in_flight: dict[jsonrpc.Id, Cancellable] = {}
        """Calls running in this process, by request id."""
        self.streams = 0
        """Number of session streams that the client reads in this process."""
        self.lists: dict[str, str] = {}
        """Kind of list → digest of the list last sent by this process."""
        self.touched = 0.0
        """Monotonic time of the last write of `last_seen`; maintained by the store."""
        self._asked: dict[jsonrpc.Id, asyncio.Future[jsonrpc.Response]] = {}
        self._silent = False

    def __repr__(self) -> str:
        return f"<Session of {self.client_info.get('name', 'a client')}, {self.revision.version}>"

    @property
    def is_busy(self) -> bool:
        """True if this process runs a call or serves a stream of the session."""
        return bool(self.in_flight or self.streams)

    async def ask(
        self, outbox: Interactive, id: str, method: str, params: dict[str, Any] | None, *, timeout: float
    ) -> jsonrpc.Response:
        """Send a request on a call's stream and wait for the response of the client.

        The request is cancelled with `notifications/cancelled` on timeout or cancellation (2025-11-25,
        basic/utilities/cancellation). Raises TimeoutError after `timeout` seconds.
        """
        if self._silent:
            return _no_answer(id)
        # Create the future first: the response may arrive before `put` returns.
        answer: asyncio.Future[jsonrpc.Response] = asyncio.get_running_loop().create_future()

        self._asked[id] = answer
        try:
            await outbox.put(jsonrpc.request(id, method, params))
            async with asyncio.timeout(timeout):
                return await answer
        except (asyncio.CancelledError, TimeoutError):
            outbox.take_back(jsonrpc.notification("notifications/cancelled", {"requestId": id}))
            raise
        finally:
            del self._asked[id]

    def answer(self, response: jsonrpc.Response) -> bool:
        """Pass a response to its waiting request, on the event loop of that request.

        Only the first response to a request counts. Returns False if no request of this process waits for it.
        """
        waiting = self._asked.get(response.id)
        if waiting is None:
            return False
        _on_its_loop(waiting.get_loop(), _settle, waiting, response)
        return True

    def hang_up(self) -> None:
        """Fail all pending and future requests: the client no longer sends messages."""
        self._silent = True
        for id in list(self._asked):
            self.answer(_no_answer(id))

    def cancel(self, id: jsonrpc.Id) -> bool:
        """Cancel a running call on its event loop; False if this process has no such call."""
        running = self.in_flight.get(id)
        if running is not None:
            _give_up(running)
        return running is not None

    def cancel_all(self) -> None:
        """Cancel all running calls at the end of the session. Thread-safe."""
        for running in list(self.in_flight.values()):
            _give_up(running)

    def leave(self) -> None:
        """Discard the session and schedule its cleanup callbacks. Thread-safe."""
        self.state = {}
        self.farewells.say()


def _no_answer(id: jsonrpc.Id) -> jsonrpc.Response:
    return jsonrpc.Response(id, None, {"code": InternalError.code, "message": "The client has closed its sending side"})


def _give_up(running: Cancellable) -> None:
    _on_its_loop(running.get_loop(), running.cancel)


def _settle(waiting: "asyncio.Future[jsonrpc.Response]", response: jsonrpc.Response) -> None:
    if not waiting.done():
        waiting.set_result(response)


def _on_its_loop(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *given: Any) -> None:
    # Under WSGI each request has its own loop and thread, and a server may run a loop in each thread. Tasks and futures
    # must be accessed on their own loop.
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop:
        act(*given)
        return
    try:
        loop.call_soon_threadsafe(act, *given)
    except RuntimeError:
        pass  # the loop is closed, and its tasks with it
