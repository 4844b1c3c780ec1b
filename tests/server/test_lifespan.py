"""Lifespans: entered before the first call of a loop, left at its end, with reported failures."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import Context, MCPError, Toolset, tool
from mcp_django.server import lifespan as module
from mcp_django.server.lifespan import Lifespans
from tests.server.client import HANDSHAKE, PipelineClient, make_server
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS


class Log(list[str]):
    """A record of the events of a lifespan."""

    def lifespan(self, name: str = "", value: Any = None) -> Callable[..., Any]:
        @contextlib.asynccontextmanager
        async def open_and_close(*_: Any) -> AsyncIterator[Any]:
            self.append(f"{name}in")
            try:
                yield value
            finally:
                self.append(f"{name}out")

        return open_and_close


def on_a_loop(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run on a loop of its own, as a server does."""

    async def run() -> Any:
        return await main()

    return asyncio.run(run())


async def test_the_lifespan_is_entered_before_the_first_call_and_its_value_is_available() -> None:
    log = Log()
    server = make_server(lifespan=log.lifespan(value={"pool": 1}))

    @server.tool
    async def state(ctx: Context) -> Any:
        return ctx.lifespan

    @server.tool
    def state_in_a_thread(ctx: Context) -> Any:
        return ctx.lifespan

    @server.tool
    def state_by_sync(ctx: Context) -> Any:
        return ctx.sync.lifespan

    peer = PipelineClient(server)
    assert log == []
    assert await peer.text("state") == '{"pool":1}'
    assert await peer.text("state_in_a_thread") == '{"pool":1}'
    assert await peer.text("state_by_sync") == '{"pool":1}'
    assert log == ["in"]
    await server.lifespan.exit()
    assert log == ["in", "out"]


async def test_without_a_lifespan_its_value_is_none() -> None:
    server = make_server()

    @server.tool
    async def state(ctx: Context) -> bool:
        return ctx.lifespan is None

    assert await PipelineClient(server).text("state") == "true"


async def test_the_lifespan_gets_the_server_and_encloses_those_of_toolsets() -> None:
    log, given = Log(), []

    class Bar(Toolset):
        lifespan = log.lifespan("bar ")

        @tool
        def drink(self) -> str:
            return "cheers"

    def own(server: Any) -> Any:
        given.append(server)
        return log.lifespan("own ")()

    server = make_server(lifespan=own, toolsets=[Bar()])
    await PipelineClient(server).text("drink")
    await server.lifespan.exit()
    assert given == [server]
    assert log == ["own in", "bar in", "bar out", "own out"]


async def test_concurrent_first_calls_enter_the_lifespan_once() -> None:
    log, gate = Log(), asyncio.Event()

    @contextlib.asynccontextmanager
    async def slow() -> AsyncIterator[str]:
        log.append("begin")
        await gate.wait()
        yield "state"

    lifespans = Lifespans(slow, list)
    waiting = [asyncio.ensure_future(lifespans.enter()) for _ in range(3)]
    while log != ["begin"]:
        await asyncio.sleep(0)
    assert not lifespans.is_entered()
    assert not any(task.done() for task in waiting)
    gate.set()
    await asyncio.gather(*waiting)
    assert lifespans.is_entered()
    assert log == ["begin"]
    await lifespans.exit()
    assert not lifespans.is_entered()


def test_every_event_loop_enters_its_own_lifespan() -> None:
    log = Log()
    lifespans = Lifespans(log.lifespan(), list)

    async def serve() -> None:
        await lifespans.enter()
        await lifespans.exit()

    for _ in range(2):
        on_a_loop(serve)
    assert log == ["in", "out"] * 2


async def test_a_cancelled_call_does_not_cancel_the_entry_for_others() -> None:
    gate = asyncio.Event()

    @contextlib.asynccontextmanager
    async def slow() -> AsyncIterator[str]:
        await gate.wait()
        yield "state"

    lifespans = Lifespans(slow, list)
    first, second = asyncio.ensure_future(lifespans.enter()), asyncio.ensure_future(lifespans.enter())
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    await second
    assert lifespans.is_entered()
    assert first.cancelled()
    await lifespans.exit()


async def test_a_lifespan_that_fails_fails_the_call_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    @contextlib.asynccontextmanager
    async def flaky(server: Any) -> AsyncIterator[str]:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("the secret database is down")
        yield "up"

    server = make_server(lifespan=flaky)

    @server.tool
    async def state(ctx: Context) -> str:
        return str(ctx.lifespan)

    peer = PipelineClient(server)
    assert "secret" not in await peer.error("state")
    assert "secret" in caplog.text
    assert await peer.text("state") == "up"
    await server.lifespan.exit()


async def test_a_lifespan_that_cancels_itself_fails_the_call() -> None:
    @contextlib.asynccontextmanager
    async def stray(server: Any) -> AsyncIterator[None]:
        raise asyncio.CancelledError
        yield

    server = make_server(lifespan=stray)
    with pytest.raises(MCPError, match="Internal error"):
        await PipelineClient(server).request("tools/list")


async def test_a_lifespan_that_fails_at_exit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @contextlib.asynccontextmanager
    async def bad() -> AsyncIterator[None]:
        yield
        raise RuntimeError("cannot close")

    lifespans = Lifespans(bad, list)
    await lifespans.enter()
    await lifespans.exit()
    assert "cannot close" in caplog.text


async def test_exit_without_an_entry_does_nothing() -> None:
    await Lifespans(Log().lifespan(), list).exit()


async def test_a_toolset_lifespan_that_fails_closes_the_open_ones() -> None:
    log = Log()

    @contextlib.asynccontextmanager
    async def bad() -> AsyncIterator[None]:
        raise RuntimeError("no")
        yield

    lifespans = Lifespans(log.lifespan(), lambda: [bad])
    with pytest.raises(RuntimeError, match="no"):
        await lifespans.enter()
    assert log == ["in", "out"]


def test_a_lifespan_can_use_threads_after_the_first_call() -> None:
    log: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        await sync_to_async(log.append)("in")
        yield
        await sync_to_async(log.append)("out")

    async def serve() -> None:
        server = make_server(lifespan=lifespan)

        @server.tool
        def hello() -> str:
            return "hello"

        assert await PipelineClient(server).text("hello") == "hello"
        await server.lifespan.exit()

    on_a_loop(serve)
    assert log == ["in", "out"]


async def test_ping_is_answered_although_the_lifespan_has_not_been_entered() -> None:
    log = Log()
    server = make_server(lifespan=log.lifespan())
    assert await PipelineClient(server, version=HANDSHAKE).request("ping") == {}
    await server.lifespan.exit()


def test_a_closed_loop_does_not_exit_the_lifespan() -> None:
    log: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            yield
        except BaseException as problem:
            log.append(repr(problem))
            raise
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.sleep(0)
        log.append("left")

    asyncio.run(Lifespans(lifespan, list).enter())
    assert log == ["left"]


def test_a_closed_loop_is_not_referenced() -> None:
    lifespans = Lifespans(Log().lifespan(), list)

    async def serve() -> "weakref.ref[asyncio.AbstractEventLoop]":
        await lifespans.enter()
        return weakref.ref(asyncio.get_running_loop())

    loop = on_a_loop(serve)
    gc.collect()
    assert loop() is None


async def test_a_lifespan_collected_after_its_loop_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A loop that is closed without cancelling its tasks leaves them to the garbage collector."""
    lifespans = Lifespans(None, list)
    loop = asyncio.new_event_loop()

    def run_and_close(loop: asyncio.AbstractEventLoop) -> None:
        loop.run_until_complete(lifespans.enter())
        loop.close()

    await asyncio.to_thread(run_and_close, loop)
    entry = lifespans._entries.find(loop)
    assert entry is not None
    assert entry.task is not None
    coroutine = entry.task.get_coro()
    assert coroutine is not None

    # The collector closes it like this, in a thread without a running loop.
    await asyncio.to_thread(coroutine.close)

    assert lifespans._entries.find(loop) is None
    del loop, entry, coroutine
    gc.collect()
    assert "Task was destroyed" in caplog.text  # asyncio's report, which would reach a later test otherwise


async def test_a_lifespan_with_a_slow_exit_is_cancelled(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = Log()

    @contextlib.asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()

    lifespans = Lifespans(log.lifespan(), lambda: [slow])
    await lifespans.enter()
    leaving = asyncio.ensure_future(lifespans.exit())
    await clock.advance(module.EXIT_TIMEOUT_SECONDS - 0.001)
    assert log == ["in"]
    await clock.advance(0.001)
    await leaving
    assert log == ["in", "out"]
    assert "longer than 5 seconds" in caplog.text


async def test_a_lifespan_that_ignores_its_cancellation_is_abandoned(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    gate, ended = asyncio.Event(), asyncio.Event()

    @contextlib.asynccontextmanager
    async def ignores_cancel() -> AsyncIterator[None]:
        yield
        with contextlib.suppress(asyncio.CancelledError):
            await gate.wait()
        await gate.wait()
        ended.set()

    lifespans = Lifespans(ignores_cancel, list)
    await lifespans.enter()
    leaving = asyncio.ensure_future(lifespans.exit())
    await clock.advance(module.EXIT_TIMEOUT_SECONDS + module.CANCEL_TIMEOUT_SECONDS)
    await leaving
    assert "Lifespan abandoned" in caplog.text
    gate.set()
    await ended.wait()
