"""Limits of running calls for each owner, and the bounded queues of calls beyond them."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from mcp_django.aio.tasks import call_threadsafe
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidRequest
from mcp_django.runtime.concurrency import ConcurrencyLimiter
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.eras.handshake import INITIALIZE
from mcp_django.server.ports import Overloaded

Problem = TypeVar("Problem", InvalidRequest, Overloaded)

MAX_QUEUED_CALLS: Final = 256
"""Maximum calls and batches of one owner in a queue."""

IMMEDIATE_METHODS: Final = frozenset(
    {
        INITIALIZE,
        "server/discover",
        "ping",
        "logging/setLevel",
        "tasks/get",
        "tasks/list",
        "tasks/update",
        "tasks/cancel",
    }
)
"""Methods that no running call delays or refuses.

They open, check or change a session, or poll and answer tasks. They have a limit of their own.
"""
TASK_RESULT_METHOD: Final = "tasks/result"
"""Method that waits for the end of a task. Such waits have a limit and a queue of their own."""


class CallCounter(Protocol):
    """A limiter, as the task of a call uses it."""

    def release(self, owner: str, calls: int = 1) -> None:
        """Uncount calls that have ended."""


class CallLimiter:
    """Limits of the running calls of one endpoint or connection, for each owner.

    Calls beyond the limit wait for the end of running ones, in their order. Polls of tasks, and other methods that run
    no handler, are counted apart. Thread-safe.
    """

    def __init__(self, max_running: int, max_queued_bytes: int, *, on_room: Callable[[], None] | None = None) -> None:
        """Set the limits; `on_room` is called whenever a call has left a queue."""
        self._calls = QueueLimiter(max_running, max_queued_bytes, on_room=on_room)
        self._task_results = QueueLimiter(max_running, max_queued_bytes, on_room=on_room)
        self._immediate = ConcurrencyLimiter(max_running)

    def admit(
        self, work: PendingResponse, size: int, owner: str, used_ids: Collection[jsonrpc.Id]
    ) -> tuple[PendingResponse, CallCounter]:
        """Count the calls of some work, or queue it; `size` is the bytes of its message.

        Returns the work to run, which may wait first, and the counter that its end releases. Refused work is closed.

        Raises:
            InvalidRequest: its id belongs to a running request, or its batch is too large.
            Overloaded: too many calls are running and waiting; with the status 429.
        """
        limiter = self._calls
        if work.call_count > limiter.max_calls_per_owner:
            text = f"A batch may hold {limiter.max_calls_per_owner} calls at most; send several"
            raise _refuse(work, InvalidRequest(text))
        if not work.is_batch:
            call = work.call
            if used_ids and call.id in used_ids:
                raise _refuse(work, InvalidRequest("A request with this id is still running", request_id=call.id))
            method = call.message.method
            if method in IMMEDIATE_METHODS:
                return work, self._count_immediate(work, owner)
            if method == TASK_RESULT_METHOD:
                limiter = self._task_results

        queued = limiter.admit(work, size, owner)
        return (work, limiter) if queued is None else (queued.build_work(), queued)

    def _count_immediate(self, work: PendingResponse, owner: str) -> ConcurrencyLimiter:
        limiter = self._immediate
        if not limiter.acquire(owner):
            message = f"More than {limiter.max_calls_per_owner} such requests at once; wait for one to end"
            raise _refuse(work, Overloaded(message, status=429))
        return limiter

    def is_full(self, owner: str) -> bool:
        """Return True while no further call fits into a queue of the owner."""
        return self._calls.is_full(owner) or self._task_results.is_full(owner)

    def __len__(self) -> int:
        """Return the number of running calls. If it is 0, no call waits either."""
        return len(self._calls) + len(self._task_results) + len(self._immediate)


def _refuse(work: PendingResponse, problem: Problem) -> Problem:
    """Close some work, and return the reason."""
    work.close(problem)
    return problem


@dataclass(slots=True, eq=False, repr=False)
class _OwnerQueue:
    """The calls of one owner that wait, in their order."""

    calls: "deque[QueuedCall]" = field(default_factory=deque)
    size: int = 0
    """Bytes of their messages."""


class QueueLimiter(ConcurrencyLimiter):
    """Limit of running calls per owner, with a queue for each owner.

    A queue is bounded by `MAX_QUEUED_CALLS` and by bytes, which its last message may exceed.
    """

    def __init__(
        self, max_calls_per_owner: int, max_queued_bytes: int, *, on_room: Callable[[], None] | None = None
    ) -> None:
        super().__init__(max_calls_per_owner)
        self._max_queued_bytes = max_queued_bytes
        self._on_room = on_room
        self._queues: dict[str, _OwnerQueue] = {}

    def admit(self, work: PendingResponse, size: int, owner: str) -> "QueuedCall | None":
        """Count the calls of some work and return None, or put it into the queue.

        Raises:
            Overloaded: the queue is full. The work is closed.
        """
        calls = work.call_count
        if not calls:
            return None
        with self._lock:
            queue = self._queues.get(owner)
            if queue is None and self._count(owner, calls):
                return None
            queue = queue or _OwnerQueue()
            if not self._is_full(queue):
                queued = QueuedCall(self, work, size, owner)
                queue.calls.append(queued)
                queue.size += size
                self._queues[owner] = queue
                return queued
        message = f"More than {self.max_calls_per_owner} calls at once, and too many wait; wait for one to end"
        raise _refuse(work, Overloaded(message, status=429))

    def _is_full(self, queue: _OwnerQueue) -> bool:
        return len(queue.calls) >= MAX_QUEUED_CALLS or queue.size > self._max_queued_bytes

    def is_full(self, owner: str) -> bool:
        """Return True while no further call fits into the queue of the owner."""
        if not self._queues:
            return False
        with self._lock:
            queue = self._queues.get(owner)
            return queue is not None and self._is_full(queue)

    def release(self, owner: str, calls: int = 1) -> None:
        """Uncount calls that have ended, and start those that wait."""
        if not calls:
            return
        with self._lock:
            self._uncount(owner, calls)
            started = self._start_queued(owner) if self._queues else []
        if started:
            self._wake(started)

    def leave(self, queued: "QueuedCall") -> None:
        """Remove a call from the queue, or uncount it if it has been counted. Does nothing the second time."""
        self._wake(self._remove_call(queued))

    def _remove_call(self, queued: "QueuedCall") -> "list[QueuedCall]":
        """Forget a call, and return those that may run now."""
        owner = queued.owner
        with self._lock:
            queue = self._queues.get(owner)
            if queued.is_counted:
                queued.is_counted = False
                self._uncount(owner, queued.call_count)
            elif queue is not None and queued in queue.calls:
                self._remove(queue, queued)
            return self._start_queued(owner)  # The first call of the queue may be a smaller batch now.

    def _start_queued(self, owner: str) -> "list[QueuedCall]":
        """Count the calls at the head of a queue that may run now, and return them."""
        started: list[QueuedCall] = []
        queue = self._queues.get(owner)
        while queue is not None and queue.calls and self._count(owner, queue.calls[0].call_count):
            queued = queue.calls[0]
            self._remove(queue, queued)
            queued.is_counted = True
            started.append(queued)
        return started

    def _remove(self, queue: _OwnerQueue, queued: "QueuedCall") -> None:
        queue.calls.remove(queued)
        queue.size -= queued.size
        if not queue.calls:
            del self._queues[queued.owner]

    def _wake(self, started: "list[QueuedCall]") -> None:
        while started:
            lost = [queued for queued in started if not queued.wake()]  # Their event loops are closed.
            started = [each for queued in lost for each in self._remove_call(queued)]
        if self._on_room is not None:
            self._on_room()


class QueuedCall:
    """Some work in a queue. It is the counter of the work's task, which waits here first.

    So the end of the task removes it from the queue, whatever ends the task: a cancellation, a client that disconnects,
    or a shutdown.
    """

    __slots__ = ("_elements", "_limiter", "_loop", "_turn", "_work", "call_count", "is_counted", "owner", "size")

    def __init__(self, limiter: QueueLimiter, work: PendingResponse, size: int, owner: str) -> None:
        self.owner = owner
        self.size = size
        self.call_count = work.call_count
        self.is_counted = False
        """True after the call left the queue to run. The lock of the limiter protects it."""
        self._limiter = limiter
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._turn: asyncio.Future[None] = self._loop.create_future()
        self._elements: list[_QueuedElement] = []

    def build_work(self) -> PendingResponse:
        """Return the same work, with a wait before it."""
        work = self._work
        if work.is_batch:
            self._elements = [_QueuedElement(call, self._loop, self._leave_if_empty) for call in work.calls]
        for element in self._elements:
            element.register()
        return work._replace(run=self._run(work), nested=(work.run, *work.nested))

    async def _run(self, work: PendingResponse) -> bytes:
        try:
            with work.call.claim_wait() as may_wait:
                if not may_wait:
                    message = (
                        f"More than {self._limiter.max_calls_per_owner} calls at once, and too many requests wait "
                        "already (WSGI_WAITS); wait for one to end"
                    )
                    raise Overloaded(message, status=429)
                await self._turn
        except BaseException as problem:
            work.close(problem if isinstance(problem, Overloaded) else None)
            raise
        finally:
            self._unregister_elements()
        return await work.run

    def _leave_if_empty(self) -> None:
        """End the wait of a batch whose calls are all cancelled: it may have other answers."""
        if all(call.record.cancelled for call in self._work.calls):
            self._limiter.leave(self)
            self.wake()

    def _unregister_elements(self) -> None:
        for element in self._elements:
            element.unregister()
        self._elements = []

    def wake(self) -> bool:
        """Start the work; return False if its loop is closed. Thread-safe."""
        return call_threadsafe(self._loop, self._end_wait)

    def _end_wait(self) -> None:
        if not self._turn.done():
            self._turn.set_result(None)

    def release(self, owner: str, calls: int = 1) -> None:
        """Uncount the calls, or leave the queue."""
        self._unregister_elements()
        self._limiter.leave(self)


class _QueuedElement:
    """A call of a batch in the queue, which the client can cancel like a running one."""

    __slots__ = ("_call", "_loop", "_on_cancelled")

    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop, on_cancelled: Callable[[], None]) -> None:
        self._call = call
        self._loop = loop
        self._on_cancelled = on_cancelled

    def register(self) -> None:
        in_flight, id = self._call.connection.in_flight, self._call.id
        if in_flight is not None and id is not None:
            in_flight.setdefault(id, self)

    def unregister(self) -> None:
        in_flight, id = self._call.connection.in_flight, self._call.id
        if in_flight is not None and id is not None and in_flight.get(id) is self:
            del in_flight[id]

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop on which the batch waits."""
        return self._loop

    def cancel(self) -> None:
        """Cancel the call; the batch runs without it."""
        self._call.record.cancelled = True
        self._on_cancelled()
