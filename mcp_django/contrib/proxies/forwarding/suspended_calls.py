"""Suspended calls: remote calls that wait for a response between two local rounds.

A client of the stateless era receives requests at the end of its call and returns with the responses. A remote server
of the handshake era sends requests while its call runs. So the remote call is kept in between, under an id in the
sealed state of the client. It is kept for a limited time, in limited number, and only in this process.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from mcp_django.client import CallError
from mcp_django.contrib.proxies.connections.questions import RemoteInputRequest
from mcp_django.extensions.calls import Context
from mcp_django.extensions.event_loop import BackgroundTasks, start_task, start_timer

MAX_REQUESTS = 64
"""Maximum number of requests in one remote call."""
REFUSED_CODE = -32600


class PendingInputRequest(NamedTuple):
    """A request of the remote server and the future of its response."""

    request: RemoteInputRequest
    response: "asyncio.Future[dict[str, Any]]"

    def reject(self, reason: str) -> None:
        """Send an error to the remote server instead of a response."""
        if not self.response.done():
            self.response.set_exception(CallError(REFUSED_CODE, reason))
            self.response.exception()  # mark as retrieved, in case the remote call has already ended

    def resolve(self, response: dict[str, Any]) -> None:
        """Send the response to the remote server."""
        if not self.response.done():
            self.response.set_result(response)


class SuspendedCall:
    """Remote call that can send requests, in a session of its own."""

    def __init__(self, run: Callable[["SuspendedCall"], Awaitable[Any]], owner: str) -> None:
        """Start the call; `run` makes it and releases the session at its end."""
        self.owner = owner
        self.listener: Context | None = None
        """Context of the local call that receives progress and log messages."""
        self.requests: list[PendingInputRequest] = []
        self._changed = asyncio.Event()
        self._task = start_task(self._finish(run))

    async def _finish(self, run: Callable[["SuspendedCall"], Awaitable[Any]]) -> Any:
        try:
            return await run(self)
        finally:
            self._changed.set()
            for pending in self.requests:
                pending.response.cancel()

    async def request_input(self, request: RemoteInputRequest) -> dict[str, Any]:
        """Return the response to a request of the remote server. Raises CallError."""
        if len(self.requests) >= MAX_REQUESTS:
            raise CallError(REFUSED_CODE, "Too many requests in one call")
        pending = PendingInputRequest(request, asyncio.get_running_loop().create_future())
        self.requests.append(pending)
        self._changed.set()
        return await pending.response

    async def wait_for_requests(self, start: int) -> list[PendingInputRequest] | None:
        """Wait for requests from this index on; None if the call has finished."""
        while len(self.requests) <= start:
            if self._task.done():
                return None
            self._changed.clear()
            await self._changed.wait()
        return None if self._task.done() else self.requests[start:]

    async def wait_for_result(self) -> Any:
        """Return the result of the finished call, or raise its exception."""
        return await self._task

    async def cancel(self) -> None:
        """Cancel the call, which notifies the remote server."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()


class SuspendedCalls:
    """Suspended calls of one proxy on one event loop."""

    def __init__(self, max_calls: int, seconds: float) -> None:
        self._max_calls = max_calls
        self._seconds = seconds
        self._calls: dict[str, tuple[SuspendedCall, asyncio.TimerHandle]] = {}
        self._cancelling = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, id: str, call: SuspendedCall) -> None:
        """Keep a call until it is taken or its time expires; evict another at the limit."""
        call.listener = None
        if len(self._calls) >= self._max_calls:
            self.evict_one()
        self._calls[id] = call, start_timer(self._seconds, self._evict, id)

    def take(self, id: str, owner: str) -> SuspendedCall | None:
        """Remove and return the owner's suspended call with this id, else None."""
        call, timer = self._calls.get(id, (None, None))
        if call is None or timer is None or call.owner != owner:
            return None
        timer.cancel()
        del self._calls[id]
        return call

    def evict_one(self) -> None:
        """Evict the oldest call of the owner with the most calls.

        So a caller cannot displace calls of other callers by starting many.
        """
        owners = Counter(call.owner for call, _ in self._calls.values())
        if owners:
            highest_count = max(owners.values())
            self._evict(next(id for id, (call, _) in self._calls.items() if owners[call.owner] == highest_count))

    async def close(self) -> None:
        """Cancel all calls, and wait until they have ended."""
        for id in list(self._calls):
            self._evict(id)
        await self._cancelling.wait()

    def _evict(self, id: str) -> None:
        call, timer = self._calls.pop(id)
        timer.cancel()
        self._cancelling.spawn(call.cancel())
