"""Calls beyond the limit of running ones: their queue, and each way to leave it."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_django import Server
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidRequest
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.runtime.calls import call_limiter
from mcp_django.runtime.calls.call_limiter import CallLimiter, QueuedCall
from mcp_django.runtime.calls.task import CallResult, CallTask
from mcp_django.runtime.concurrency import refuse_wait
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.ports import Outcome, Overloaded
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS, turns

pytestmark = pytest.mark.usefixtures("clock")
BATCHES = "2025-03-26"
LONG = 10.0
"""Seconds until a call becomes a stream. They pass only where a test moves the clock."""
SIZE = 10
"""Bytes of a message, unless a test sets others."""


class QueueServer:
    """A server that runs two calls of an owner at once, and the calls of a test to it."""

    def __init__(self, version: str = STATELESS, max_bytes: int = 1000) -> None:
        self.limiter = CallLimiter(2, max_bytes)
        self.lifecycle = Lifecycle(grace_seconds=LONG, close_threads=lambda loop: None)
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.server = make_server()
        self.peer = PipelineClient(self.server, version=version)
        self._declare(self.server)

    def _declare(self, server: Server) -> None:
        @server.tool
        async def hold(name: str) -> str:
            self.begun.append(name)
            await self.end(name).wait()
            return name

    def end(self, name: str) -> asyncio.Event:
        return self.ends.setdefault(name, asyncio.Event())

    def message(self, name: str) -> dict[str, Any]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {
            "name": "hold",
            "arguments": {"name": name},
            **({"_meta": meta} if self.peer.session is None else {}),
        }
        return {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params}

    def work(self, message: Any, **connection: Any) -> PendingResponse:
        peer = self.peer
        era = peer.pipeline.eras[REVISIONS[peer.version].era]
        work = peer.pipeline.handle(
            era, message, Connection(peer.principal, session=peer.session, **connection), Outbox()
        )
        assert isinstance(work, PendingResponse)
        return work

    def begin(self, *names: str, size: int = SIZE, owner: str = "owner", **connection: Any) -> CallTask:
        """Begin a call, or a batch of several."""
        messages: Any = [self.message(name) for name in names]
        work = self.work(messages if len(names) > 1 else messages[0], **connection)
        session = self.peer.session
        work, counter = self.limiter.admit(work, size, owner, () if session is None else session.in_flight)
        task = CallTask(work, counter, owner, self.peer.pipeline.encode_work_error, self.lifecycle)
        task.start()
        return task

    async def fill(self) -> None:
        """Start as many calls as may run at once."""
        self.begin("a")
        self.begin("b")
        await turns(5)
        assert self.begun == ["a", "b"]

    async def finish(self, *names: str) -> None:
        for name in names:
            self.end(name).set()
        await turns(10)

    def cancel(self, id: str) -> None:
        """Cancel a call of the session, as `notifications/cancelled` does."""
        assert self.peer.session is not None
        self.peer.session.in_flight[id].cancel()

    def is_empty(self) -> bool:
        """Return True if nothing is counted, nothing waits, and no call is registered."""
        limiters = (self.limiter._calls, self.limiter._task_results)
        in_flight = {} if self.peer.session is None else self.peer.session.in_flight
        return (
            not any(limiter._queues or limiter._counts for limiter in limiters)
            and not self.lifecycle.active
            and not in_flight
        )


async def result(task: CallTask) -> CallResult:
    found = await task.wait_for_output(LONG)
    assert found is not None
    return found


def text(found: CallResult) -> str:
    return str(jsonrpc.loads(found.body)["result"]["content"][0]["text"])


async def test_calls_beyond_the_limit_wait_and_run_in_their_order() -> None:
    there = QueueServer()
    await there.fill()
    tasks = [there.begin(name) for name in "cde"]
    await turns(10)
    assert there.begun == ["a", "b"]
    await there.finish("b")
    assert there.begun == ["a", "b", "c"]
    later = there.begin("later")  # It does not overtake the others.
    await there.finish("a", "c")
    assert there.begun == ["a", "b", "c", "d", "e"]
    await there.finish("d", "e", "later")
    assert [text(await result(task)) for task in [*tasks, later]] == ["c", "d", "e", "later"]
    assert there.is_empty()


async def test_no_call_waits_below_the_limit() -> None:
    there = QueueServer()
    work = there.work(there.message("a"))
    admitted, counter = there.limiter.admit(work, SIZE, "owner", ())
    assert admitted is work
    assert counter is there.limiter._calls
    work.close()


async def test_the_number_of_waiting_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_limiter, "MAX_QUEUED_CALLS", 2)
    there = QueueServer()
    await there.fill()
    there.begin("c")
    there.begin("d")
    with pytest.raises(Overloaded, match="More than 2 calls at once, and too many wait") as refused:
        there.begin("e")
    assert refused.value.status == 429
    await there.finish("a")
    there.begin("f")  # There is room again.
    await there.finish("b", "c", "d", "f")
    assert there.begun == ["a", "b", "c", "d", "f"]
    assert there.is_empty()


async def test_the_bytes_of_waiting_calls_are_bounded() -> None:
    there = QueueServer(max_bytes=1000)
    await there.fill()
    there.begin("c", size=600)
    there.begin("d", size=600)
    with pytest.raises(Overloaded) as refused:
        there.begin("e", size=1)
    assert refused.value.status == 429
    await there.finish("a")
    there.begin("f", size=1)
    await there.finish("b", "c", "d", "f")
    assert there.is_empty()


async def test_a_waiting_call_can_be_cancelled_and_never_runs() -> None:
    there = QueueServer(HANDSHAKE)
    await there.fill()
    cancelled, next_one = there.begin("c"), there.begin("d")
    there.cancel("c")
    assert (await result(cancelled)) == CallResult(b"")
    await turns(5)
    assert (cancelled.call.record.outcome, cancelled.call.record.cancelled) == (Outcome.CANCELLED, True)
    await there.finish("a")
    assert there.begun == ["a", "b", "d"]
    await there.finish("b", "d")
    assert text(await result(next_one)) == "d"
    assert there.is_empty()


async def test_a_call_cancelled_at_its_turn_gives_its_place_to_the_next() -> None:
    there = QueueServer()
    await there.fill()
    cancelled, next_one = there.begin("c"), there.begin("d")
    await turns(5)
    there.end("a").set()
    counter = cancelled.counter
    assert isinstance(counter, QueuedCall)
    while not counter.is_counted:
        await turns(1)
    cancelled.cancel()
    await turns(10)
    assert there.begun == ["a", "b", "d"]
    await there.finish("b", "d")
    assert text(await result(next_one)) == "d"
    assert there.is_empty()


async def test_a_disconnect_cancels_a_waiting_call_without_a_session() -> None:
    there = QueueServer()
    await there.fill()
    left, next_one = there.begin("c"), there.begin("d")
    await turns(5)
    left.on_disconnect()
    await there.finish("a", "b", "d")
    assert there.begun == ["a", "b", "d"]
    assert text(await result(next_one)) == "d"
    assert there.is_empty()


async def test_a_waiting_call_of_a_session_runs_after_a_disconnect() -> None:
    there = QueueServer(HANDSHAKE)
    await there.fill()
    left = there.begin("c")
    await turns(5)
    left.on_disconnect()
    await there.finish("a", "b", "c")
    assert there.begun == ["a", "b", "c"]
    assert left.call.record.outcome is Outcome.OK
    assert there.is_empty()


async def test_the_end_of_a_session_ends_its_waiting_calls() -> None:
    there = QueueServer(BATCHES)
    await there.fill()
    one, batch = there.begin("c"), there.begin("d", "e")
    assert there.peer.session is not None
    there.peer.session.cancel_all()
    await turns(20)
    assert [(await result(task)).body for task in (one, batch)] == [b"", b""]
    assert there.begun == ["a", "b"]
    assert there.is_empty()


async def test_a_shutdown_lets_waiting_calls_run_within_the_grace() -> None:
    there = QueueServer()
    await there.fill()
    waiting = there.begin("c")
    ending = asyncio.ensure_future(there.lifecycle.shutdown())
    await there.finish("a", "b", "c")
    assert text(await result(waiting)) == "c"
    waiting.is_answered = True
    ending.cancel()


async def test_a_shutdown_ends_waiting_calls_after_the_grace(clock: Clock) -> None:
    there = QueueServer()
    await there.fill()
    waiting = there.begin("c")
    first = asyncio.ensure_future(result(waiting))
    ending = asyncio.ensure_future(there.lifecycle.shutdown(grace_seconds=1))
    await clock.advance(1)
    found = await first
    assert isinstance(found.error, Overloaded)
    assert str(found.error) == "The server is shutting down"
    await clock.advance_until(ending.done)
    assert there.begun == ["a", "b"]
    assert waiting.call.record.outcome is Outcome.CANCELLED
    assert there.is_empty()


async def test_the_queue_of_one_owner_does_not_stop_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_limiter, "MAX_QUEUED_CALLS", 1)
    there = QueueServer()
    await there.fill()
    there.begin("c")
    with pytest.raises(Overloaded):
        there.begin("d")
    there.begin("x", owner="other")
    there.begin("y", owner="other")
    there.begin("z", owner="other")
    await turns(10)
    assert there.begun == ["a", "b", "x", "y"]
    await there.finish("x")
    assert there.begun == ["a", "b", "x", "y", "z"]
    await there.finish("a", "b", "c", "y", "z")
    assert there.is_empty()


async def test_a_batch_waits_until_each_of_its_calls_has_a_place() -> None:
    there = QueueServer(BATCHES)
    await there.fill()
    batch = there.begin("c", "d")
    await there.finish("a")
    later = there.begin("later")
    await turns(10)
    assert there.begun == ["a", "b"], "one place is too few, and the later call does not overtake"
    await there.finish("b")
    assert there.begun == ["a", "b", "c", "d"]
    await there.finish("c", "d", "later")
    assert {answer["id"] for answer in jsonrpc.loads((await result(batch)).body)} == {"c", "d"}
    assert text(await result(later)) == "later"
    assert there.is_empty()


async def test_a_waiting_batch_takes_one_place_of_the_queue_and_is_refused_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_limiter, "MAX_QUEUED_CALLS", 1)
    there = QueueServer(BATCHES)
    await there.fill()
    there.begin("c", "d")
    with pytest.raises(Overloaded):
        there.begin("e", "f")
    await there.finish("a", "b", "c", "d")
    assert there.begun == ["a", "b", "c", "d"]
    assert there.is_empty()


async def test_a_call_of_a_waiting_batch_can_be_cancelled_alone() -> None:
    there = QueueServer(BATCHES)
    await there.fill()
    batch = there.begin("c", "d")
    with pytest.raises(InvalidRequest, match="still running"):
        there.begin("c")
    there.cancel("c")
    await there.finish("a", "b", "d")
    assert there.begun == ["a", "b", "d"]
    assert [answer["id"] for answer in jsonrpc.loads((await result(batch)).body)] == ["d"]
    assert there.is_empty()


async def test_a_batch_whose_calls_are_cancelled_stops_waiting_and_keeps_its_other_answers() -> None:
    there = QueueServer(BATCHES)
    await there.fill()
    messages = [there.message("c"), {"jsonrpc": "2.0", "id": "ping", "method": "ping"}]
    work, counter = there.limiter.admit(there.work(messages), SIZE, "owner", ())
    task = CallTask(work, counter, "owner", there.peer.pipeline.encode_work_error, there.lifecycle)
    task.start()
    await turns(5)
    there.cancel("c")
    assert [answer["id"] for answer in jsonrpc.loads((await result(task)).body)] == ["ping"]
    await there.finish("a", "b")
    assert there.begun == ["a", "b"]
    assert there.is_empty()


async def test_a_request_that_may_not_block_a_thread_is_refused() -> None:
    there = QueueServer()
    await there.fill()
    found = await result(there.begin("c", claim_wait=refuse_wait))
    assert isinstance(found.error, Overloaded)
    assert (found.error.status, "WSGI_WAITS" in str(found.error)) == (429, True)
    await there.finish("a", "b")
    assert there.begun == ["a", "b"]
    assert there.is_empty()


class LoopThread:
    """An event loop of another thread, as each request under WSGI has one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT_SECONDS)

    def close(self) -> None:
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_SECONDS)
        self.loop.close()


@pytest.fixture
def other_loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


async def test_a_call_waits_on_the_loop_of_its_own_thread(other_loop: LoopThread) -> None:
    there = QueueServer()
    await there.fill()

    async def begin() -> CallTask:
        there.end("c").set()
        return there.begin("c")

    waiting = await asyncio.to_thread(other_loop.run, begin())
    await there.finish("a")
    assert text(await asyncio.to_thread(other_loop.run, result(waiting))) == "c"
    await there.finish("b")
    assert there.is_empty()


async def test_the_place_of_a_call_whose_loop_is_closed_goes_to_the_next(other_loop: LoopThread) -> None:
    there = QueueServer()
    await there.fill()

    async def wait() -> None:
        work = there.work(there.message("lost"))
        there.limiter.admit(work, SIZE, "owner", ())[0].close()

    await asyncio.to_thread(other_loop.run, wait())
    await asyncio.to_thread(other_loop.close)
    there.begin("d")
    await there.finish("a")
    assert there.begun == ["a", "b", "d"]
    await there.finish("b", "d")
    assert there.is_empty()
