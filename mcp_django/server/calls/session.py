"""One session of the handshake era, as this process holds it.

The store (`ports.SessionStore`) keeps what must outlive the process; the calls in flight and the questions that wait
for an answer live here.
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
    """A client that said `initialize`, and what it said there."""

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
        """For handlers; lives as long as this process knows the session."""
        self.farewells = Farewells()
        """What is done when it does so no more."""
        self.in_flight: dict[jsonrpc.Id, Cancellable] = {}
        """Calls being served here, by request id."""
        self.streams = 0
        """Streams of its own, without a call, that its client reads here."""
        self.lists: dict[str, str] = {}
        """Kind of list → digest of what this process gave the client last."""
        self.touched = 0.0
        """Monotonic time of the last write of `last_seen`; the store's."""
        self._asked: dict[jsonrpc.Id, asyncio.Future[jsonrpc.Response]] = {}
        self._silent = False

    def __repr__(self) -> str:
        return f"<Session of {self.client_info.get('name', 'a client')}, {self.revision.version}>"

    @property
    def is_busy(self) -> bool:
        """Is anything of it going on in this process?"""
        return bool(self.in_flight or self.streams)

    async def ask(
        self, outbox: Interactive, id: str, method: str, params: dict[str, Any] | None, *, timeout: float
    ) -> jsonrpc.Response:
        """Send a request under `id` on a call's stream and wait for the client's answer, `timeout` seconds at most.

        Raises TimeoutError. A question given up (timeout, cancellation) is taken back with `notifications/cancelled`
        (2025-11-25, basic/utilities/cancellation).
        """
        if self._silent:
            return _no_answer(id)
        # The future comes first: the answer may arrive before `put` returns.
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
        """Hand a client's answer to the question it belongs to, on whatever loop of this process that waits; of
        several the first counts. False when it was not asked here, or waits no more.
        """
        waiting = self._asked.get(response.id)
        if waiting is None:
            return False
        _on_its_loop(waiting.get_loop(), _settle, waiting, response)
        return True

    def hang_up(self) -> None:
        """The client still listens but says nothing more: whoever has asked it something, or does so from now on, gets
        an error for an answer.
        """
        self._silent = True
        for id in list(self._asked):
            self.answer(_no_answer(id))

    def cancel(self, id: jsonrpc.Id) -> bool:
        """Cancel a call in flight, on the loop that it runs on. False when none with this id runs in this process."""
        running = self.in_flight.get(id)
        if running is not None:
            _give_up(running)
        return running is not None

    def cancel_all(self) -> None:
        """Cancel what is in flight; the session is over. May be called from any thread."""
        for running in list(self.in_flight.values()):
            _give_up(running)

    def leave(self) -> None:
        """This process knows it no more: do what was left for then. May be called from any thread."""
        self.state = {}
        self.farewells.say()


def _no_answer(id: jsonrpc.Id) -> jsonrpc.Response:
    return jsonrpc.Response(id, None, {"code": InternalError.code, "message": "The client says nothing more"})


def _give_up(running: Cancellable) -> None:
    _on_its_loop(running.get_loop(), running.cancel)


def _settle(waiting: "asyncio.Future[jsonrpc.Response]", response: jsonrpc.Response) -> None:
    if not waiting.done():
        waiting.set_result(response)


def _on_its_loop(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *given: Any) -> None:
    # Under WSGI each request has a loop and a thread of its own, and a server may run a loop in each of its threads;
    # tasks and futures are touched on their own only.
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
        pass  # the loop is closed, and what ran on it is gone with it
