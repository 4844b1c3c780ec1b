"""Flights: how a call begins, what its answer is, and that nothing of it stays behind."""

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
    """A server with a gate, and flights to it."""

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
        async def stubborn() -> str:
            self.reached.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                await self.gate.wait()
            return "after all"

        @server.tool
        async def colour() -> str:
            return COLOUR.get()

    def flight(self, tool: str, may_stream: bool = True) -> CallTask:
        """A call that has been counted and not begun."""
        return self.to(self.work(tool)._replace(can_stream=may_stream))

    def to(self, work: PendingResponse) -> CallTask:
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

    def failing(self, problem: BaseException) -> CallTask:
        """A call whose work ends like this."""

        async def fail() -> bytes:
            raise problem

        work = self.work("quick")
        work.close()
        return self.to(work._replace(run=fail(), nested=()))


def text(body: bytes) -> str:
    return str(jsonrpc.loads(body)["result"]["content"][0]["text"])


async def said(flight: CallTask) -> list[dict[str, Any]]:
    """Everything on the stream, to its end."""
    found: list[bytes] = []
    while (messages := await flight.call.outbox.read(LONG)) is not None:
        found += messages
    return [jsonrpc.loads(message) for message in found]


async def test_a_quick_call_lands_with_its_answer(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("quick")
            assert len(there.in_flight) == 1
            flight.start()
            landing = await flight.wait_for_output(LONG)
            assert landing is not None
            assert (text(landing.body), landing.error) == ("quick", None)
            assert not flight.is_streaming
            assert len(there.in_flight) == 0
            assert there.peer.session is None or there.peer.session.in_flight == {}


async def test_a_call_that_speaks_first_is_a_stream_that_ends_with_the_answer(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("talk")
            flight.start()
            assert await flight.wait_for_output(LONG) is None
            assert flight.is_streaming
            there.gate.set()
            hello, answer = await said(flight)
            assert hello["method"] == "notifications/hello"
            assert answer["result"]["content"][0]["text"] == "talked"


async def test_a_call_that_takes_long_becomes_a_stream(subtests: pytest.Subtests, clock: Clock) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("wait")
            flight.start()
            first = asyncio.ensure_future(flight.wait_for_output(LONG))
            await clock.advance(LONG)
            assert await first is None
            there.gate.set()
            (answer,) = await said(flight)
            assert answer["result"]["content"][0]["text"] == "waited"


async def test_a_call_that_must_not_stream_lands_however_long_it_takes_and_whatever_it_says(
    subtests: pytest.Subtests,
) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("talk", may_stream=False)
            flight.start()
            first = asyncio.ensure_future(flight.wait_for_output(0))
            await there.reached.wait()
            there.gate.set()
            landing = await first
            assert landing is not None
            assert text(landing.body) == "talked"


async def test_waiting_begins_only_for_a_call_that_is_still_in_the_air(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there, begun = CallServer(version), asyncio.Event()
            quick = there.flight("quick")
            quick.start()
            await quick.wait_for_output(LONG, begun.set)
            assert not begun.is_set()
            slow = there.flight("wait")
            slow.start()
            first = asyncio.ensure_future(slow.wait_for_output(LONG, begun.set))
            await begun.wait()
            there.gate.set()
            await first


async def test_a_call_cancelled_before_its_first_step_leaves_nothing_behind(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("wait")
            flight.start()
            if flight._has_started:
                pytest.skip("this Python runs the first step at once")
            flight.cancel()
            landing = await flight.wait_for_output(LONG)
            assert landing is not None
            assert (landing.body, flight.is_cancelled, flight.call.record.cancelled) == (b"", True, True)
            assert len(there.in_flight) == 0
            assert there.peer.session is None or there.peer.session.in_flight == {}
            assert flight.task is not None
            await asyncio.wait([flight.task])
            assert not there.reached.is_set()
            assert len(there.in_flight) == 0


async def test_a_call_that_cannot_begin_leaves_nothing_behind(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("wait")

            def fail(*_: Any, **__: Any) -> None:
                raise MemoryError

            with monkeypatch.context() as patch:
                patch.setattr(asyncio, "Task", fail)
                with pytest.raises(MemoryError):
                    flight.start()
            assert len(there.in_flight) == 0
            assert there.peer.session is None or there.peer.session.in_flight == {}


async def test_a_cancelled_call_has_no_answer_and_its_handler_knows(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("wait")
            flight.start()
            first = asyncio.ensure_future(flight.wait_for_output(LONG))
            await there.reached.wait()
            flight.cancel()
            flight.cancel()
            landing = await first
            assert landing is not None
            assert (landing.body, landing.error, flight.is_cancelled) == (b"", None, True)
            assert there.contexts[0].cancelled
            assert len(there.in_flight) == 0


async def test_the_stream_of_a_cancelled_call_ends_without_an_answer(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("talk")
            flight.start()
            assert await flight.wait_for_output(LONG) is None
            flight.cancel()
            assert await said(flight) == []
            assert flight.task is not None
            await asyncio.wait([flight.task])
            assert len(there.in_flight) == 0


async def test_what_goes_on_after_the_answer_speaks_to_nobody_and_waits_for_nobody(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("quick")
            flight.start()
            assert await flight.wait_for_output(LONG) is not None
            outbox = flight.call.outbox
            for _ in range(200):
                await outbox.put(b"late")
            assert await outbox.read(LONG) is None


async def test_cancelling_what_has_landed_changes_nothing(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            flight = CallServer(version).flight("quick")
            flight.start()
            landing = await flight.wait_for_output(LONG)
            flight.cancel()
            assert landing is not None
            assert (text(landing.body), flight.is_cancelled) == ("quick", False)


async def test_a_client_that_leaves_ends_a_stateless_call_and_not_one_of_a_session(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("wait")
            flight.start()
            first = asyncio.ensure_future(flight.wait_for_output(LONG))
            await asyncio.sleep(0)  # `first` waits, also where the call has reached its handler at launch
            await there.reached.wait()
            flight.on_disconnect()
            assert flight.is_disconnected
            await first
            stateless = flight.call.revision.era is Era.STATELESS
            assert flight.is_cancelled is stateless
            there.gate.set()
            assert flight.task is not None
            await asyncio.wait([flight.task])
            assert len(there.in_flight) == 0
            assert there.contexts[0].cancelled is stateless


async def test_an_error_lands_as_what_it_is(subtests: pytest.Subtests) -> None:
    for problem in [InvalidParams("no"), Overloaded("full")]:
        for version in ERAS:
            with subtests.test(problem=problem, version=version):
                flight = CallServer(version).failing(problem)
                flight.start()
                landing = await flight.wait_for_output(LONG)
                assert landing is not None
                assert landing.error is problem


async def test_an_error_on_a_stream_is_its_last_message(subtests: pytest.Subtests) -> None:
    for problem, code in [(InvalidParams("no"), -32602), (Overloaded("full"), -32603)]:
        for version in ERAS:
            with subtests.test(problem=problem, code=code, version=version):
                flight = CallServer(version).failing(problem)
                flight.is_streaming = True
                flight.start()
                (last,) = await said(flight)
                assert last["id"] == 1
                assert last["error"] == {"code": code, "message": str(problem)}


async def test_whatever_ends_a_call_nobody_waits_for_ever(subtests: pytest.Subtests) -> None:
    """A GeneratorExit is no bug of the call's, and the loop outlives it."""
    for streaming in [False, True]:
        for version in ERAS:
            with subtests.test(streaming=streaming, version=version):
                there = CallServer(version)
                flight = there.failing(GeneratorExit())
                flight.is_streaming = streaming
                flight.start()
                landing = await flight.wait_for_output(LONG)
                if streaming:
                    (last,) = await said(flight)
                    assert last["error"]["code"] == -32603
                else:
                    assert landing is not None
                    assert isinstance(landing.error, InternalError)
                assert flight.task is not None
                assert isinstance(flight.task.exception(), GeneratorExit)
                assert len(there.in_flight) == 0


async def test_an_error_that_comes_of_a_cancellation_is_not_sent(subtests: pytest.Subtests) -> None:
    for problem in [InvalidParams("no"), Overloaded("full")]:
        for version in ERAS:
            with subtests.test(problem=problem, version=version):
                there = CallServer(version)
                work = there.work("quick")
                work.close()
                flight = there.to(work._replace(run=there.fail_on_cancellation(problem), nested=()))
                flight.start()
                first = asyncio.ensure_future(flight.wait_for_output(LONG))
                await there.reached.wait()
                flight.cancel()
                landing = await first
                assert landing is not None
                assert (flight.is_cancelled, landing.body, landing.error) == (True, b"", None)


async def test_a_call_that_is_shut_down_answers_why(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("wait")
            flight.start()
            first = asyncio.ensure_future(flight.wait_for_output(LONG))
            await there.reached.wait()
            assert there.lifecycle.active == {flight}
            flight.abort()
            flight.abort()
            landing = await first
            assert landing is not None
            assert isinstance(landing.error, Overloaded)
            assert jsonrpc.loads(flight.encode_error(InternalError("The end")))["id"] == 1
            assert flight.task is not None
            await asyncio.wait([flight.task])
            assert there.contexts[0].cancelled
            assert (len(there.in_flight), there.lifecycle.active) == (0, set())


async def test_the_stream_of_a_call_that_is_shut_down_ends_with_the_reason(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("talk")
            flight.start()
            assert await flight.wait_for_output(LONG) is None
            flight.abort()
            hello, last = await said(flight)
            assert hello["method"] == "notifications/hello"
            assert (last["id"], last["error"]) == (1, {"code": -32603, "message": "The server is shutting down"})


async def test_a_call_shut_down_before_its_first_step_leaves_nothing_behind(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("wait")
            flight.start()
            if flight._has_started:
                pytest.skip("this Python runs the first step at once")
            flight.abort()
            landing = await flight.wait_for_output(LONG)
            assert landing is not None
            assert isinstance(landing.error, Overloaded)
            assert (len(there.in_flight), there.lifecycle.active) == (0, set())
            assert flight.task is not None
            await asyncio.wait([flight.task])
            assert not there.reached.is_set()


async def test_shutting_down_what_has_landed_or_was_cancelled_changes_nothing(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("quick")
            flight.start()
            landing = await flight.wait_for_output(LONG)
            flight.abort()
            assert landing is not None
            assert (text(landing.body), flight.is_cancelled) == ("quick", False)
            given_up = there.flight("talk")
            given_up.start()
            assert await given_up.wait_for_output(LONG) is None
            given_up.cancel()
            given_up.abort()
            assert await said(given_up) == []


async def test_an_answer_that_comes_after_the_shutdown_is_not_sent(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            there = CallServer(version)
            flight = there.flight("stubborn")
            flight.start()
            first = asyncio.ensure_future(flight.wait_for_output(LONG))
            await there.reached.wait()
            flight.abort()
            landing = await first
            there.gate.set()
            assert flight.task is not None
            await asyncio.wait([flight.task])
            assert landing is not None
            assert isinstance(landing.error, Overloaded)
            assert flight._result is landing


async def test_a_batch_that_is_shut_down_answers_for_each_of_its_calls() -> None:
    there = CallServer("2025-03-26")
    messages = [
        {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "talk", "arguments": {}}}
        for id in ("one", 2)
    ]
    pipeline, connection = there.peer.pipeline, Connection(there.peer.principal, session=there.peer.session)
    work = pipeline.handle(pipeline.handshake, messages, connection, Outbox())
    assert isinstance(work, PendingResponse)
    flight = there.to(work)
    flight.start()
    assert await flight.wait_for_output(LONG) is None
    flight.abort()
    said_last = (await said(flight))[-1]
    assert [(answer["id"], answer["error"]["message"]) for answer in said_last] == [
        ("one", "The server is shutting down"),
        (2, "The server is shutting down"),
    ]
    assert flight.task is not None
    await asyncio.wait([flight.task])


async def test_a_call_runs_in_a_clean_context(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            COLOUR.set("red")
            flight = CallServer(version).flight("colour")
            flight.start()
            landing = await flight.wait_for_output(LONG)
            assert landing is not None
            assert text(landing.body) == "none"


async def test_a_session_knows_its_flight_while_it_is_in_the_air() -> None:
    there = CallServer(HANDSHAKE)
    session = there.peer.session
    assert session is not None
    flight = there.flight("wait")
    flight.start()
    first = asyncio.ensure_future(flight.wait_for_output(LONG))
    await there.reached.wait()
    assert session.in_flight == {1: flight}
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


async def test_a_call_runs_in_the_context_that_is_handed_in(subtests: pytest.Subtests) -> None:
    for version in ERAS:
        with subtests.test(version=version):
            flight, context = CallServer(version).flight("colour"), contextvars.Context()
            context.run(COLOUR.set, "green")
            flight.start(context)
            landing = await flight.wait_for_output(LONG)
            assert landing is not None
            assert text(landing.body) == "green"


async def test_a_pipeline_refuses_a_batch_that_holds_no_calls_without_an_id() -> None:
    there = CallServer()
    work = there.work("quick")
    refused = jsonrpc.loads(
        there.peer.pipeline.encode_work_error(work._replace(calls=(), is_batch=True), MCPError("no"))
    )
    assert (refused["error"]["message"], "id" in refused) == ("no", False)
    work.close()
