"""Call tasks: how a call begins, its answer, and that it leaves nothing behind."""

import asyncio
import contextvars
from typing import Any

import pytest

from mcp_django import Context, Server
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidParams, MCPError
from mcp_django.protocol.revisions import REVISIONS, Era
from mcp_django.runtime.calls.task import CallTask
from mcp_django.runtime.concurrency import ConcurrencyLimiter
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Overloaded
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server
from tests.support.clock import Clock

pytestmark = pytest.mark.usefixtures("clock")
ERAS = (STATELESS, HANDSHAKE)
LONG = 10.0
"""Seconds until a call becomes a stream. They pass only where a test moves the clock."""
OWNER = "owner"
COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


class CallServer:
    """A server with a gate, and call tasks for it."""

    def __init__(self, version: str = STATELESS) -> None:
        self.in_flight = ConcurrencyLimiter(2)
        self.lifecycle = Lifecycle(grace_seconds=LONG, close_threads=lambda loop: None)
        self.gate, self.reached = asyncio.Event(), asyncio.Event()
        self.contexts: list[Context] = []
        self.server = make_server()
        self.peer = PipelineClient(self.server, version=version)
        self._declare(self.server)

    def _declare(self, server: Server) -> None:
        @server.tool
        async def quick() -> str:
            return "quick"

        @server.tool
        async def wait(ctx: Context) -> str:
            self.contexts.append(ctx)
            self.reached.set()
            await self.gate.wait()
            return "waited"

        @server.tool
        async def talk(ctx: Context) -> str:
            await ctx.notify("notifications/hello")
            self.reached.set()
            await self.gate.wait()
            return "talked"

        @server.tool
        async def ignore_cancellation() -> str:
            self.reached.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                await self.gate.wait()
            return "after all"

        @server.tool
        async def colour() -> str:
            return COLOUR.get()

    def build_call(self, tool: str, may_stream: bool = True) -> CallTask:
        """Build the task of a counted call that has not begun."""
        return self.build_task(self.work(tool)._replace(can_stream=may_stream))

    def build_task(self, work: PendingResponse) -> CallTask:
        assert self.in_flight.acquire(OWNER)
        pipeline = self.peer.pipeline
        return CallTask(work, self.in_flight, OWNER, pipeline.encode_work_error, self.lifecycle)

    def work(self, tool: str) -> PendingResponse:
        peer = self.peer
        meta = {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": tool, "arguments": {}, **({"_meta": meta} if peer.session is None else {})}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        era = peer.pipeline.eras[REVISIONS[peer.version].era]
        work = peer.pipeline.handle(era, message, Connection(peer.principal, session=peer.session), Outbox())
        assert isinstance(work, PendingResponse)
        return work

    async def fail_on_cancellation(self, problem: BaseException) -> bytes:
        try:
            self.reached.set()
            await asyncio.Event().wait()
        finally:
            raise problem

    def build_failing_call(self, problem: BaseException) -> CallTask:
        """Build a task that ends with `problem`."""

        async def fail() -> bytes:
            raise problem

        work = self.work("quick")
        work.close()
        return self.build_task(work._replace(run=fail(), nested=()))


def text(body: bytes) -> str:
    return str(jsonrpc.loads(body)["result"]["content"][0]["text"])


async def read_stream(task: CallTask) -> list[dict[str, Any]]:
    """Read all messages of the stream, to its end."""
    found: list[bytes] = []
    while (messages := await task.call.outbox.read(LONG)) is not None:
        found += messages
    return [jsonrpc.loads(message) for message in found]


async def test_a_quick_call_returns_its_answer(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("quick")
            assert len(there.in_flight) == 1
            task.start()
            result = await task.wait_for_output(LONG)
            assert result is not None
            assert (text(result.body), result.error) == ("quick", None)
            assert not task.is_streaming
            assert len(there.in_flight) == 0
            assert there.peer.session is None or there.peer.session.in_flight == {}


async def test_a_call_that_sends_a_message_first_is_a_stream_that_ends_with_the_answer(
    subtests: pytest.Subtests,
) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("talk")
            task.start()
            assert await task.wait_for_output(LONG) is None
            assert task.is_streaming
            there.gate.set()
            hello, answer = await read_stream(task)
            assert hello["method"] == "notifications/hello"
            assert answer["result"]["content"][0]["text"] == "talked"


async def test_a_call_that_takes_long_becomes_a_stream(subtests: pytest.Subtests, clock: Clock) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("wait")
            task.start()
            first = asyncio.ensure_future(task.wait_for_output(LONG))
            await clock.advance(LONG)
            assert await first is None
            there.gate.set()
            (answer,) = await read_stream(task)
            assert answer["result"]["content"][0]["text"] == "waited"


async def test_a_call_that_may_not_stream_returns_its_answer_despite_messages_and_time(
    subtests: pytest.Subtests,
) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("talk", may_stream=False)
            task.start()
            first = asyncio.ensure_future(task.wait_for_output(0))
            await there.reached.wait()
            there.gate.set()
            result = await first
            assert result is not None
            assert text(result.body) == "talked"


async def test_the_wait_callback_runs_only_for_an_unfinished_call(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there, begun = CallServer(version), asyncio.Event()
            quick = there.build_call("quick")
            quick.start()
            await quick.wait_for_output(LONG, begun.set)
            assert not begun.is_set()
            slow = there.build_call("wait")
            slow.start()
            first = asyncio.ensure_future(slow.wait_for_output(LONG, begun.set))
            await begun.wait()
            there.gate.set()
            await first


async def test_a_call_cancelled_before_its_first_step_leaves_nothing_behind(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("wait")
            task.start()
            if task._has_started:
                pytest.skip("this Python runs the first step at once")
            task.cancel()
            result = await task.wait_for_output(LONG)
            assert result is not None
            assert (result.body, task.is_cancelled, task.call.record.cancelled) == (b"", True, True)
            assert len(there.in_flight) == 0
            assert there.peer.session is None or there.peer.session.in_flight == {}
            assert task.task is not None
            await asyncio.wait([task.task])
            assert not there.reached.is_set()
            assert len(there.in_flight) == 0


async def test_a_call_that_cannot_begin_leaves_nothing_behind(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("wait")

            def fail(*_: Any, **__: Any) -> None:
                raise MemoryError

            with monkeypatch.context() as patch:
                patch.setattr(asyncio, "Task", fail)
                with pytest.raises(MemoryError):
                    task.start()
            assert len(there.in_flight) == 0
            assert there.peer.session is None or there.peer.session.in_flight == {}


async def test_a_cancelled_call_has_no_answer_and_its_context_is_cancelled(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("wait")
            task.start()
            first = asyncio.ensure_future(task.wait_for_output(LONG))
            await there.reached.wait()
            task.cancel()
            task.cancel()
            result = await first
            assert result is not None
            assert (result.body, result.error, task.is_cancelled) == (b"", None, True)
            assert there.contexts[0].cancelled
            assert len(there.in_flight) == 0


async def test_the_stream_of_a_cancelled_call_ends_without_an_answer(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("talk")
            task.start()
            assert await task.wait_for_output(LONG) is None
            task.cancel()
            assert await read_stream(task) == []
            assert task.task is not None
            await asyncio.wait([task.task])
            assert len(there.in_flight) == 0


async def test_messages_after_the_answer_are_dropped_without_waiting(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("quick")
            task.start()
            assert await task.wait_for_output(LONG) is not None
            outbox = task.call.outbox
            for _ in range(200):
                await outbox.put(b"late")
            assert await outbox.read(LONG) is None


async def test_cancelling_a_finished_call_changes_nothing(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            task = CallServer(version).build_call("quick")
            task.start()
            result = await task.wait_for_output(LONG)
            task.cancel()
            assert result is not None
            assert (text(result.body), task.is_cancelled) == ("quick", False)


async def test_a_disconnect_cancels_a_stateless_call_but_not_a_session_call(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("wait")
            task.start()
            first = asyncio.ensure_future(task.wait_for_output(LONG))
            await asyncio.sleep(0)  # `first` waits even if the call reached its handler at launch
            await there.reached.wait()
            task.on_disconnect()
            assert task.is_disconnected
            await first
            stateless = task.call.revision.era is Era.STATELESS
            assert task.is_cancelled is stateless
            there.gate.set()
            assert task.task is not None
            await asyncio.wait([task.task])
            assert len(there.in_flight) == 0
            assert there.contexts[0].cancelled is stateless


async def test_an_error_of_a_call_is_in_its_result(subtests: pytest.Subtests) -> None:
    for problem in [InvalidParams("no"), Overloaded("full")]:
        for version in ERAS:
            with subtests.test(problem=problem, version=version):
                task = CallServer(version).build_failing_call(problem)
                task.start()
                result = await task.wait_for_output(LONG)
                assert result is not None
                assert result.error is problem


async def test_an_error_on_a_stream_is_its_last_message(subtests: pytest.Subtests) -> None:
    for problem, code in [(InvalidParams("no"), -32602), (Overloaded("full"), -32603)]:
        for version in ERAS:
            with subtests.test(problem=problem, code=code, version=version):
                task = CallServer(version).build_failing_call(problem)
                task.is_streaming = True
                task.start()
                (last,) = await read_stream(task)
                assert last["id"] == 1
                assert last["error"] == {"code": code, "message": str(problem)}


async def test_a_generator_exit_ends_the_wait_for_a_call(subtests: pytest.Subtests) -> None:
    """A GeneratorExit does not count as a bug of the call, and the loop survives it."""
    for streaming in [False, True]:
        for version in ERAS:
            with subtests.test(streaming=streaming, version=version):
                there = CallServer(version)
                task = there.build_failing_call(GeneratorExit())
                task.is_streaming = streaming
                task.start()
                result = await task.wait_for_output(LONG)
                if streaming:
                    (last,) = await read_stream(task)
                    assert last["error"]["code"] == -32603
                else:
                    assert result is not None
                    assert isinstance(result.error, InternalError)
                assert task.task is not None
                assert isinstance(task.task.exception(), GeneratorExit)
                assert len(there.in_flight) == 0


async def test_an_error_caused_by_a_cancellation_is_not_sent(subtests: pytest.Subtests) -> None:
    for problem in [InvalidParams("no"), Overloaded("full")]:
        for version in ERAS:
            with subtests.test(problem=problem, version=version):
                there = CallServer(version)
                work = there.work("quick")
                work.close()
                task = there.build_task(work._replace(run=there.fail_on_cancellation(problem), nested=()))
                task.start()
                first = asyncio.ensure_future(task.wait_for_output(LONG))
                await there.reached.wait()
                task.cancel()
                result = await first
                assert result is not None
                assert (task.is_cancelled, result.body, result.error) == (True, b"", None)


async def test_a_call_that_is_shut_down_answers_with_the_reason(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("wait")
            task.start()
            first = asyncio.ensure_future(task.wait_for_output(LONG))
            await there.reached.wait()
            assert there.lifecycle.active == {task}
            task.abort()
            task.abort()
            result = await first
            assert result is not None
            assert isinstance(result.error, Overloaded)
            assert jsonrpc.loads(task.encode_error(InternalError("The end")))["id"] == 1
            assert task.task is not None
            await asyncio.wait([task.task])
            assert there.contexts[0].cancelled
            assert (len(there.in_flight), there.lifecycle.active) == (0, set())


async def test_the_stream_of_a_call_that_is_shut_down_ends_with_the_reason(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("talk")
            task.start()
            assert await task.wait_for_output(LONG) is None
            task.abort()
            hello, last = await read_stream(task)
            assert hello["method"] == "notifications/hello"
            assert (last["id"], last["error"]) == (1, {"code": -32603, "message": "The server is shutting down"})


async def test_a_call_shut_down_before_its_first_step_leaves_nothing_behind(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("wait")
            task.start()
            if task._has_started:
                pytest.skip("this Python runs the first step at once")
            task.abort()
            result = await task.wait_for_output(LONG)
            assert result is not None
            assert isinstance(result.error, Overloaded)
            assert (len(there.in_flight), there.lifecycle.active) == (0, set())
            assert task.task is not None
            await asyncio.wait([task.task])
            assert not there.reached.is_set()


async def test_shutting_down_a_finished_or_cancelled_call_changes_nothing(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("quick")
            task.start()
            result = await task.wait_for_output(LONG)
            task.abort()
            assert result is not None
            assert (text(result.body), task.is_cancelled) == ("quick", False)
            given_up = there.build_call("talk")
            given_up.start()
            assert await given_up.wait_for_output(LONG) is None
            given_up.cancel()
            given_up.abort()
            assert await read_stream(given_up) == []


async def test_an_answer_that_comes_after_the_shutdown_is_not_sent(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            task = there.build_call("ignore_cancellation")
            task.start()
            first = asyncio.ensure_future(task.wait_for_output(LONG))
            await there.reached.wait()
            task.abort()
            result = await first
            there.gate.set()
            assert task.task is not None
            await asyncio.wait([task.task])
            assert result is not None
            assert isinstance(result.error, Overloaded)
            assert task._result is result


async def test_a_batch_that_is_shut_down_answers_for_each_of_its_calls() -> None:
    there = CallServer("2025-03-26")
    messages = [
        {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "talk", "arguments": {}}}
        for id in ("one", 2)
    ]
    pipeline, connection = there.peer.pipeline, Connection(there.peer.principal, session=there.peer.session)
    work = pipeline.handle(pipeline.handshake, messages, connection, Outbox())
    assert isinstance(work, PendingResponse)
    task = there.build_task(work)
    task.start()
    assert await task.wait_for_output(LONG) is None
    task.abort()
    answers = (await read_stream(task))[-1]
    assert [(answer["id"], answer["error"]["message"]) for answer in answers] == [
        ("one", "The server is shutting down"),
        (2, "The server is shutting down"),
    ]
    assert task.task is not None
    await asyncio.wait([task.task])


async def test_a_call_runs_in_a_clean_context(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            COLOUR.set("red")
            task = CallServer(version).build_call("colour")
            task.start()
            result = await task.wait_for_output(LONG)
            assert result is not None
            assert text(result.body) == "none"


async def test_a_session_lists_its_running_calls() -> None:
    there = CallServer(HANDSHAKE)
    session = there.peer.session
    assert session is not None
    task = there.build_call("wait")
    task.start()
    first = asyncio.ensure_future(task.wait_for_output(LONG))
    await there.reached.wait()
    assert session.in_flight == {1: task}
    there.gate.set()
    await first
    assert session.in_flight == {}


async def test_work_that_is_refused_can_be_closed_without_a_warning() -> None:
    CallServer().work("wait").close()


async def test_a_pipeline_refuses_with_the_id_of_the_call() -> None:
    there = CallServer()
    work = there.work("quick")
    pipeline: Pipeline = there.peer.pipeline
    refused = jsonrpc.loads(pipeline.encode_error(work.call.era, MCPError("no"), work.call))
    assert refused["id"] == 1
    work.close()


async def test_a_call_runs_in_the_given_context(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            task, context = CallServer(version).build_call("colour"), contextvars.Context()
            context.run(COLOUR.set, "green")
            task.start(context)
            result = await task.wait_for_output(LONG)
            assert result is not None
            assert text(result.body) == "green"


async def test_a_pipeline_refuses_a_batch_that_holds_no_calls_without_an_id() -> None:
    there = CallServer()
    work = there.work("quick")
    refused = jsonrpc.loads(
        there.peer.pipeline.encode_work_error(work._replace(calls=(), is_batch=True), MCPError("no"))
    )
    assert (refused["error"]["message"], "id" in refused) == ("no", False)
    work.close()
