"""Work that is left for when the answer was sent."""

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


async def test_it_runs_after_the_call_in_the_order_it_was_left() -> None:
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


async def test_a_handler_that_fails_leaves_nothing_and_one_that_answers_with_an_error_does() -> None:
    server, done = make_server(), []

    @server.tool
    async def fails(ctx: Context) -> None:
        ctx.background(done.append, "fails")
        raise ToolError("no")

    @server.tool
    async def tells(ctx: Context) -> ToolResult:
        ctx.background(done.append, "tells")
        return ToolResult("no", is_error=True)

    peer = PipelineClient(server)
    await peer.error("fails")
    await peer.error("tells")
    assert done == ["tells"]


async def test_what_a_guard_leaves_is_done_though_the_tool_fails() -> None:
    server, done = make_server(), []

    def guard(ctx: Context) -> None:
        ctx.background(done.append, "asked")

    @server.tool(guards=[guard])
    async def it(ctx: Context) -> None:
        ctx.background(done.append, "handled")
        raise ToolError("no")

    await PipelineClient(server).error("it")
    assert done == ["asked"]


async def test_a_round_that_ends_with_a_question_leaves_nothing() -> None:
    server, done = make_server(), []

    @server.tool
    async def it(ctx: Context) -> None:
        ctx.background(done.append, "once")
        await ctx.elicit("Sure?")

    peer = PipelineClient(server, answer=lambda method, params: accept(value=True))
    await peer.call("it")
    assert peer.rounds == 1
    assert done == ["once"]


async def test_what_fails_is_logged_and_the_rest_is_done(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_it_is_not_left_after_the_answer() -> None:
    server, kept = make_server(), []

    @server.tool
    async def it(ctx: Context) -> None:
        kept.append(ctx)

    await PipelineClient(server).call("it")
    with pytest.raises(RuntimeError, match="was answered"):
        kept[0].background(print)


async def test_what_cannot_be_called_is_refused_at_once() -> None:
    server = make_server()

    @server.tool
    async def it(ctx: Context) -> str:
        with pytest.raises(TypeError, match="not NoneType"):
            ctx.background(print("sent"))  # type: ignore[func-returns-value, arg-type]  # noqa: T201
        return "fine"

    assert await PipelineClient(server).text("it") == "fine"


async def test_places_are_counted_and_given_back() -> None:
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
    """A server whose tool leaves work that says when it begins."""

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
def test_it_begins_when_the_door_has_sent_the_answer_and_not_before(version: str) -> None:
    async def main() -> None:
        there = Later(version)
        flight = there.flight("leave")
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


def test_the_end_of_the_process_waits_for_it_also_when_its_call_has_not_ended() -> None:
    async def main() -> None:
        there = Later()
        running = there.flight("wait_and_leave")
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


def test_at_the_end_of_the_grace_it_is_ended(clock: Clock) -> None:
    async def main() -> None:
        clock.control(asyncio.get_running_loop())
        there = Later()
        there.lifecycle.grace_seconds = 3
        flight = there.flight("leave")
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


async def test_where_nothing_comes_after_the_answer_it_runs_just_before() -> None:
    there = Later()
    there.let.set()
    flight = there.flight("leave")
    flight.start()
    assert await flight.wait_for_output(LONG) is not None
    assert there.ended == "done"
