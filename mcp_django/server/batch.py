"""JSON-RPC batches: several messages in one body.

Only revision 2025-03-26 accepts them (basic/transports).
"""

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, cast

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidRequest, MCPError
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import AnyCoroutine, Handled, Receipt, Work
from mcp_django.server.eras.base import Era
from mcp_django.server.eras.handshake import OPENING
from mcp_django.server.ports import Overloaded

if TYPE_CHECKING:
    from mcp_django.server.pipeline import Pipeline


class Batch:
    """The elements of one batch, handled independently and concurrently.

    A failing element does not affect the other elements (JSON-RPC 2.0, batch).
    """

    def __init__(self, pipeline: "Pipeline", era: Era, connection: Connection, outbox: Outbox) -> None:
        self._pipeline, self._era, self._connection, self._outbox = pipeline, era, connection, outbox
        self._replies: list[bytes] = []
        self._works: dict[jsonrpc.Id, Work] = {}
        self._receipts: list[AnyCoroutine] = []

    def handle(self, items: list[Any]) -> Handled:
        """Handle all elements. Raises InvalidRequest for an invalid batch."""
        most = self._pipeline.server.options.batch
        if len(items) > most:
            raise InvalidRequest(f"The batch has more than {most} messages; send several smaller batches")
        if any(map(_is_answer, items)) and not all(map(_is_answer, items)):
            raise InvalidRequest("A batch must hold either requests and notifications, or responses, but not both")
        for item in items:
            try:
                self._sort(self._one(item))
            except MCPError as problem:
                self._replies.append(self._pipeline.refuse(self._era, problem))

        if not self._works and not self._replies:
            return Receipt(self._noticed() if self._receipts else None)
        if not self._works and not self._receipts:
            return jsonrpc.batch(self._replies)
        return self._work()

    def _one(self, item: Any) -> Handled:
        if type(item) is list:
            raise InvalidRequest("A batch must not contain another batch")
        if type(item) is dict and item.get("method") == OPENING:
            raise InvalidRequest("initialize must not be part of a batch", request_id=_readable_id(item))
        return self._pipeline.handle(self._era, item, self._connection, self._outbox)

    def _sort(self, outcome: Handled) -> None:
        """Sort the outcome of one element into calls, notifications and responses.

        Raises InvalidRequest when another call of this batch, or a running call, uses the same id.
        """
        match outcome:
            case Work():
                id, in_flight = _id(outcome), self._connection.in_flight
                if id in self._works or (in_flight is not None and id in in_flight):
                    taken = InvalidRequest("A request with this id is still running", request_id=id)
                    outcome.close(taken)
                    raise taken
                self._works[id] = outcome
            case Receipt(run):
                if run is not None:
                    self._receipts.append(run)
            case bytes():
                self._replies.append(outcome)

    def _work(self) -> Work:
        works, era = list(self._works.values()), self._era
        call = works[0].call if works else era.open(jsonrpc.Request(0, "ping", None), self._connection, self._outbox)
        inner = [coroutine for work in works for coroutine in (work.run, *work.inner)]
        inner += self._receipts
        answered, weight = tuple(work.call for work in works), len(works) or 1
        return Work(call, self._answers(), tuple(inner), answered, in_batch=True, weight=weight)

    async def _answers(self) -> bytes:
        found = self._connection.in_flight
        in_flight: dict[jsonrpc.Id, Any] = {} if found is None else found

        elements = {id: _Element(work) for id, work in self._works.items()}
        for id, element in elements.items():
            in_flight.setdefault(id, element)

        try:
            await self._noticed()
            for element in elements.values():
                element.begin()
            await _ended(list(elements.values()))
            answers = [self._answer(element) for element in elements.values()]
        finally:
            for id, element in elements.items():
                if in_flight.get(id) is element:
                    del in_flight[id]
            # Calls that a cancelled batch did not start.
            for work in self._works.values():
                if _is_new(work.run):
                    work.close()

        if not self._replies and not any(answers):
            raise asyncio.CancelledError  # the client cancelled every call
        return jsonrpc.batch([*self._replies, *filter(None, answers)])

    async def _noticed(self) -> None:
        try:
            for receipt in self._receipts:
                await receipt
        finally:
            for receipt in self._receipts:
                if _is_new(receipt):
                    receipt.close()

    def _answer(self, element: "_Element") -> bytes:
        """Return the encoded response to a call, or b"" if the client cancelled it."""
        work, task = element.work, element.task
        try:
            answer = b"" if task is None or task.cancelled() else task.result()
        except MCPError as problem:
            answer = self._pipeline.refuse(self._era, problem, work.call)
        except Overloaded as problem:
            answer = self._pipeline.refuse(self._era, InternalError(str(problem)), work.call)
        return b"" if element.cancelled else answer


class _Element:
    """Task of a call in a batch, which the client can cancel by its id.

    The other calls of the batch continue.
    """

    __slots__ = ("_loop", "cancelled", "task", "work")

    def __init__(self, work: Work) -> None:
        self.work, self.cancelled = work, False
        self.task: asyncio.Task[bytes] | None = None
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        """Start the call, unless it was cancelled while notifications were handled."""
        if not self.cancelled:
            self.task = self._loop.create_task(_begun(self.work))

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def cancel(self) -> None:
        """Cancel the call once.

        A second cancellation would interrupt the cleanup that the first one started.
        """
        if not self.cancelled and (self.task is None or not self.task.done()):
            self.cancelled = self.work.call.cancelled = True
            if self.task is not None:
                self.task.cancel()


async def _ended(elements: list[_Element]) -> None:
    """Wait until all calls have ended.

    If the caller is cancelled, cancel the calls and wait for them.
    """
    tasks = [element.task for element in elements if element.task is not None]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for element in elements:
            element.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # mark the exception as retrieved
        raise


async def _begun(work: Work) -> bytes:
    # The task can be cancelled before its first step. `_BatchCall` closes `work` in that case too.
    return await work.run


def _id(work: Work) -> jsonrpc.Id:
    return cast(jsonrpc.Request, work.call.message).id


def _is_new(coroutine: AnyCoroutine) -> bool:
    """Return True if the coroutine has not started."""
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


def _is_answer(item: Any) -> bool:
    return type(item) is dict and "method" not in item and ("result" in item or "error" in item)


def _readable_id(item: dict[str, Any]) -> jsonrpc.Id | None:
    id = item.get("id")
    return id if type(id) is int or type(id) is str else None
