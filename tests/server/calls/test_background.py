"""Background jobs, which run after the response was sent."""

import asyncio
import logging

import pytest

from mcp_django import Context, ToolError, ToolResult
from mcp_django.protocol import jsonrpc
from mcp_django.runtime.calls.background import LimitedBackgroundSlots
from mcp_django.server.options import ServerOptions
from mcp_django.server.ports import Overloaded
from mcp_django.server.server import Server
from tests.runtime.test_calls import LONG, CallServer
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_server, ports
from tests.support.clock import Clock
from tests.support.waiting import turns


async def test_background_jobs_run_after_the_call_in_order() -> None:
    server, done = make_server(), []

    async def later(word: str, *, mark: str = "") -> None:
        done.append(word + mark)

    @server.tool
    async def it(ctx: Context) -> str:
        ctx.background(later, "a", mark="!")
        ctx.background(done.append, "b")
        assert not done
        return "answered"

    @server.tool
    def plain(ctx: Context) -> str:
        ctx.background(done.append, "c")
        return f"answered {len(done)}"

    peer = PipelineClient(server)
    assert await peer.text("it") == "answered"
    assert await peer.text("plain") == "answered 2"
    assert done == ["a!", "b", "c"]


async def test_jobs_of_a_failed_handler_are_dropped_and_those_of_an_error_result_run() -> None:
    server, done = make_server(), []

    @server.tool
    async def fails(ctx: Context) -> None:
        ctx.background(done.append, "fails")
        raise ToolError("no")

    @server.tool
    async def reports(ctx: Context) -> ToolResult:
        ctx.background(done.append, "reports")
        return ToolResult("no", is_error=True)

    peer = PipelineClient(server)
    await peer.error("fails")
    await peer.error("reports")
    assert done == ["reports"]


async def test_a_job_of_a_guard_runs_after_a_failed_tool() -> None:
    server, done = make_server(), []

    def guard(ctx: Context) -> None:
        ctx.background(done.append, "asked")

    @server.tool(guards=[guard])
    async def it(ctx: Context) -> None:
        ctx.background(done.append, "handled")
        raise ToolError("no")

    await PipelineClient(server).error("it")
    assert done == ["asked"]


async def test_a_round_that_ends_with_a_question_runs_no_jobs() -> None:
    server, done = make_server(), []

    @server.tool
    async def it(ctx: Context) -> None:
        ctx.background(done.append, "once")
        await ctx.elicit("Sure?")

    peer = PipelineClient(server, answer=lambda method, params: accept(value=True))
    await peer.call("it")
    assert peer.rounds == 1
    assert done == ["once"]


async def test_a_failed_job_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    server, done = make_server(), []

    def broken() -> None:
        raise RuntimeError("secret")

    @server.tool
    async def it(ctx: Context) -> str:
        ctx.background(broken)
        ctx.background(done.append, "rest")
        return "fine"

    with caplog.at_level(logging.ERROR, "mcp_django.server"):
        assert await PipelineClient(server).text("it") == "fine"
    (record,) = caplog.records
    assert "broken" in record.getMessage()
    assert "tools/call of it" in record.getMessage()
    assert done == ["rest"]


async def test_a_job_cannot_be_added_after_the_response() -> None:
    server, kept = make_server(), []

    @server.tool
    async def it(ctx: Context) -> None:
        kept.append(ctx)

    await PipelineClient(server).call("it")
    with pytest.raises(RuntimeError, match="was answered"):
        kept[0].background(print)


async def test_a_job_that_is_not_callable_is_refused() -> None:
    server = make_server()

    @server.tool
    async def it(ctx: Context) -> str:
        with pytest.raises(TypeError, match="not NoneType"):
            ctx.background(print("sent"))  # type: ignore[func-returns-value, arg-type]  # noqa: T201
        return "fine"

    assert await PipelineClient(server).text("it") == "fine"


async def test_the_number_of_waiting_jobs_is_limited() -> None:
    places = LimitedBackgroundSlots(1)
    server = Server("tests", "1", ports=ports(background=places), options=ServerOptions())

    @server.tool
    async def one(ctx: Context) -> None:
        ctx.background(lambda: None)

    @server.tool
    async def two(ctx: Context) -> None:
        ctx.background(lambda: None)
        ctx.background(lambda: None)

    peer = PipelineClient(server)
    for _ in range(3):
        await peer.call("one")
        with pytest.raises(Overloaded, match="background"):
            await peer.call("two")
    places.acquire().release()


class Later(CallServer):
    """A server with a tool whose background job records its start."""

    def __init__(self, version: str = STATELESS) -> None:
        super().__init__(version)
        self.begun, self.let, self.ended = asyncio.Event(), asyncio.Event(), ""

        async def work() -> None:
            self.begun.set()
            try:
                await self.let.wait()
                self.ended = "done"
            except asyncio.CancelledError:
                self.ended = "cancelled"
                raise

        @self.server.tool
        async def leave(ctx: Context) -> str:
            ctx.background(work)
            return "left"

        @self.server.tool
        async def wait_and_leave(ctx: Context) -> str:
            self.reached.set()
            await self.gate.wait()
            ctx.background(work)
            return "left"


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
def test_jobs_start_after_the_transport_has_sent_the_response(version: str) -> None:
    async def main() -> None:
        there = Later(version)
        flight = there.build_call("leave")
        flight.start()
        landing = await flight.wait_for_output(LONG)
        assert landing is not None
        assert jsonrpc.loads(landing.body)["result"]["content"][0]["text"] == "left"
        assert len(there.in_flight) == 0, "the call is over for its client"
        await turns(5)
        assert not there.begun.is_set()
        flight.is_answered = True
        await there.begun.wait()
        assert there.lifecycle.active, "it is in the air"
        there.let.set()
        while there.lifecycle.active:
            await asyncio.sleep(0)
        assert there.ended == "done"

    asyncio.run(main())


def test_shutdown_waits_for_jobs_of_running_calls() -> None:
    async def main() -> None:
        there = Later()
        running = there.build_call("wait_and_leave")
        running.start()
        await there.reached.wait()
        closing = asyncio.create_task(there.lifecycle.shutdown())
        await turns(5)
        there.gate.set()
        running.is_answered = True
        await there.begun.wait()
        await turns(5)
        assert not closing.done()
        there.let.set()
        await closing
        assert there.ended == "done"

    asyncio.run(main())


def test_jobs_are_cancelled_after_the_grace_period(clock: Clock) -> None:
    async def main() -> None:
        clock.control(asyncio.get_running_loop())
        there = Later()
        there.lifecycle.grace_seconds = 3
        flight = there.build_call("leave")
        flight.start()
        flight.is_answered = True
        await there.begun.wait()
        closing = asyncio.ensure_future(there.lifecycle.shutdown())
        await clock.advance(2.999)
        assert there.ended == ""
        await clock.advance(0.001)
        await closing
        assert there.ended == "cancelled"
        assert not there.lifecycle.active

    asyncio.run(main())


async def test_without_a_later_point_jobs_run_before_the_response() -> None:
    there = Later()
    there.let.set()
    flight = there.build_call("leave")
    flight.start()
    assert await flight.wait_for_output(LONG) is not None
    assert there.ended == "done"
