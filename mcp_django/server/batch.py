"""JSON-RPC batches: several messages in one body.

Only revision 2025-03-26 accepts them (basic/transports).
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidRequest, MCPError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.calls.call import Call, Connection, EraStrategy
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Acknowledgement, AnyCoroutine, PendingResponse, PipelineResult
from mcp_django.server.eras.handshake import INITIALIZE
from mcp_django.server.ports import Overloaded

MAX_BATCH_MESSAGES = 50
HandleMessage = Callable[[EraStrategy, Any, Connection, Outbox], PipelineResult]
"""Function that handles one message; raises MCPError."""
EncodeError = Callable[[EraStrategy, MCPError, Call | None], bytes]
"""Function that encodes an error response, to a call if there is one."""


class Batch:
    """The elements of one batch, handled independently and concurrently.

    A failing element does not affect the other elements (JSON-RPC 2.0, batch).
    """

    def __init__(
        self,
        era: EraStrategy,
        connection: Connection,
        outbox: Outbox,
        *,
        handle_message: HandleMessage,
        encode_error: EncodeError,
    ) -> None:
        self._handle_one = handle_message
        self._encode_error = encode_error
        self._era = era
        self._connection = connection
        self._outbox = outbox
        self._replies: list[bytes] = []
        self._works: dict[jsonrpc.Id, PendingResponse] = {}
        self._receipts: list[AnyCoroutine] = []

    def handle(self, items: list[Any]) -> PipelineResult:
        """Handle all elements. Raises InvalidRequest for an invalid batch."""
        if len(items) > MAX_BATCH_MESSAGES:
            raise InvalidRequest(f"The batch has more than {MAX_BATCH_MESSAGES} messages; send several smaller batches")
        if any(map(_is_response, items)) and not all(map(_is_response, items)):
            raise InvalidRequest("A batch must hold either requests and notifications, or responses, but not both")
        for item in items:
            try:
                self._add_outcome(self._handle_message(item))
            except MCPError as problem:
                self._replies.append(self._encode_error(self._era, problem, None))

        if not self._works and not self._replies:
            return Acknowledgement(self._run_notifications() if self._receipts else None)
        if not self._works and not self._receipts:
            return jsonrpc.batch(self._replies)
        return self._build_work()

    def _handle_message(self, item: object) -> PipelineResult:
        if type(item) is list:
            raise InvalidRequest("A batch must not contain another batch")
        if type(item) is dict and item.get("method") == INITIALIZE:
            raise InvalidRequest("initialize must not be part of a batch", request_id=_find_request_id(item))
        return self._handle_one(self._era, item, self._connection, self._outbox)

    def _add_outcome(self, outcome: PipelineResult) -> None:
        """Sort the outcome of one element into calls, notifications and responses.

        Raises InvalidRequest when another call of this batch, or a running call, uses the same id.
        """
        match outcome:
            case PendingResponse():
                id, in_flight = _request_id(outcome), self._connection.in_flight
                if id in self._works or (in_flight is not None and id in in_flight):
                    taken = InvalidRequest("A request with this id is still running", request_id=id)
                    outcome.close(taken)
                    raise taken
                self._works[id] = outcome
            case Acknowledgement(run):
                if run is not None:
                    self._receipts.append(run)
            case bytes():
                self._replies.append(outcome)

    def _build_work(self) -> PendingResponse:
        works, era = list(self._works.values()), self._era
        call = (
            works[0].call
            if works
            else era.create_call(jsonrpc.Request(0, "ping", None), self._connection, self._outbox)
        )
        inner = [coroutine for work in works for coroutine in (work.run, *work.nested)]
        inner += self._receipts
        answered, weight = tuple(work.call for work in works), len(works) or 1
        return PendingResponse(call, self._run(), tuple(inner), answered, is_batch=True, call_count=weight)

    async def _run(self) -> bytes:
        in_flight_or_none = self._connection.in_flight
        in_flight: dict[jsonrpc.Id, Any] = {} if in_flight_or_none is None else in_flight_or_none

        elements = {id: _BatchCall(work) for id, work in self._works.items()}
        for id, element in elements.items():
            in_flight.setdefault(id, element)

        try:
            await self._run_notifications()
            for element in elements.values():
                element.start()
            await _wait_for_calls(list(elements.values()))
            answers = [self._encode_answer(element) for element in elements.values()]
        finally:
            for id, element in elements.items():
                if in_flight.get(id) is element:
                    del in_flight[id]
            # Calls that a cancelled batch did not start.
            for work in self._works.values():
                if _is_unstarted(work.run):
                    work.close()

        if not self._replies and not any(answers):
            raise asyncio.CancelledError  # the client cancelled every call
        return jsonrpc.batch([*self._replies, *filter(None, answers)])

    async def _run_notifications(self) -> None:
        try:
            for receipt in self._receipts:
                await receipt
        finally:
            for receipt in self._receipts:
                if _is_unstarted(receipt):
                    receipt.close()

    def _encode_answer(self, element: "_BatchCall") -> bytes:
        """Return the encoded response to a call, or b"" if the client cancelled it."""
        work, task = element.work, element.task
        try:
            answer = b"" if task is None or task.cancelled() else task.result()
        except MCPError as problem:
            answer = self._encode_error(self._era, problem, work.call)
        except Overloaded as problem:
            answer = self._encode_error(self._era, InternalError(str(problem)), work.call)
        return b"" if element.cancelled else answer


class _BatchCall:
    """Task of a call in a batch, which the client can cancel by its id.

    The other calls of the batch continue.
    """

    __slots__ = ("_loop", "cancelled", "task", "work")

    def __init__(self, work: PendingResponse) -> None:
        self.work = work
        self.cancelled = work.call.record.cancelled  # The batch may have waited.
        self.task: asyncio.Task[bytes] | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Start the call, unless it was cancelled while notifications were handled."""
        if not self.cancelled:
            self.task = self._loop.create_task(_run_work(self.work))

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def cancel(self) -> None:
        """Cancel the call once.

        A second cancellation would interrupt the cleanup that the first one started.
        """
        if not self.cancelled and (self.task is None or not self.task.done()):
            self.cancelled = True
            self.work.call.record.cancelled = True
            if self.task is not None:
                self.task.cancel()


async def _wait_for_calls(calls: list[_BatchCall]) -> None:
    """Wait until all calls have ended.

    If the caller is cancelled, cancel the calls and wait for them.
    """
    tasks = [element.task for element in calls if element.task is not None]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for element in calls:
            element.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # mark the exception as retrieved
        raise


async def _run_work(work: PendingResponse) -> bytes:
    # The task can be cancelled before its first step. `_BatchCall` closes `work` in that case too.
    return await work.run


def _request_id(work: PendingResponse) -> jsonrpc.Id:
    return cast(jsonrpc.Request, work.call.message).id


def _is_unstarted(coroutine: AnyCoroutine) -> bool:
    """Return True if the coroutine has not started."""
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


def _is_response(item: object) -> bool:
    return type(item) is dict and "method" not in item and ("result" in item or "error" in item)


def _find_request_id(item: JSONObject) -> jsonrpc.Id | None:
    id = item.get("id")
    return id if type(id) is int or type(id) is str else None
