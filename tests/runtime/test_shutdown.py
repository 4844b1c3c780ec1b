"""The shutdown of a process: signals, drain callbacks, calls that it awaits and calls that it aborts."""

import asyncio
import gc
import signal
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from mcp_django.aio import clock as package_clock
from mcp_django.runtime import shutdown as module
from mcp_django.runtime.shutdown import Lifecycle
from tests.server.client import make_server
from tests.server.test_lifespan import Log
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS

BOTH = (signal.SIGTERM, signal.SIGINT)
LONG = 3600.0
"""Seconds of grace that no test uses up."""


class Call:
    """A call that ends when its gate opens."""

    is_call = True

    def __init__(self, ends: bool = True) -> None:
        self.gate, self.ended, self.is_answered = asyncio.Event(), "", False
        self.loop = asyncio.get_running_loop()
        self.task: asyncio.Task[None] | None = self.loop.create_task(self._wait())
        self._ends = ends

    async def _wait(self) -> None:
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                if self._ends:
                    break
        self.ended = self.ended or "landed"
        self.is_answered = True

    def abort(self) -> None:
        assert self.task is not None
        self.ended = "shut down"
        self.task.cancel()


class Process:
    """A lifecycle, and the handlers of a server that records its signals."""

    def __init__(self, grace: float = LONG) -> None:
        self.received: list[int] = []
        self.closed: list[Any] = []
        self.finish = asyncio.Event()
        self.lifecycle = Lifecycle(grace_seconds=grace, close_threads=self.closed.append)

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        self.finish.set()

    def serve(self, main: Callable[[], Awaitable[Any]]) -> Any:
        """Run on the main thread with the server's handlers in place, as uvicorn and Twisted do."""

        async def bounded() -> Any:
            for number in BOTH:
                signal.signal(number, self.handle)
            clock = getattr(package_clock.source, "__self__", None)
            if isinstance(clock, Clock):
                clock.control(asyncio.get_running_loop())
            return await main()

        return asyncio.run(bounded())

    def start(self, ends: bool = True) -> Call:
        call = Call(ends)
        self.lifecycle.register(call)
        return call


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the signal handlers."""
    before = {number: signal.getsignal(number) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_the_server_receives_the_signal_after_the_calls() -> None:
    process = Process()

    async def main() -> None:
        call = process.start()
        signal.raise_signal(signal.SIGTERM)
        await turns()
        assert process.lifecycle.is_draining()
        assert (process.received, call.ended) == ([], "")
        call.gate.set()
        await process.finish.wait()
        assert (process.received, call.ended) == ([signal.SIGTERM], "landed")
        assert process.closed == [asyncio.get_running_loop()]

    process.serve(main)


@pytest.mark.parametrize(
    ("beside", "log_lines"), [(False, []), (True, ["Shutting down: 1 calls have 3600 seconds to end"])]
)
def test_the_log_does_not_count_streams_as_calls(
    beside: bool, log_lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    process = Process()

    async def main() -> None:
        streams = process.start()
        streams.is_call = False
        calls = [streams, process.start()] if beside else [streams]
        signal.raise_signal(signal.SIGTERM)
        await turns()
        for call in calls:
            call.gate.set()
        await process.finish.wait()

    with caplog.at_level("INFO", "mcp_django.lifecycle"):
        process.serve(main)
    assert caplog.messages == log_lines


@pytest.mark.parametrize("closed", [True, False])
def test_the_signal_is_delayed_while_calls_are_open(closed: bool) -> None:
    process = Process()

    async def main() -> None:
        await process.lifecycle.startup(())
        release = process.lifecycle.protect_connection()
        if closed:
            release()
        call = process.start()
        signal.raise_signal(signal.SIGTERM)
        await turns()
        assert process.lifecycle.is_draining()
        assert process.received == ([signal.SIGTERM] if closed else [])
        call.gate.set()
        await process.finish.wait()
        assert process.received == [signal.SIGTERM]
        assert process.closed == []  # that is for lifespan.shutdown
        await process.lifecycle.shutdown()

    process.serve(main)


def test_a_server_with_lifespan_shutdown_receives_the_signal_at_once() -> None:
    process = Process()

    async def main() -> None:
        await process.lifecycle.startup(())
        call = process.start()
        signal.raise_signal(signal.SIGTERM)
        assert process.received == [signal.SIGTERM]
        assert process.lifecycle.is_draining()
        await turns()
        assert call.ended == ""
        call.gate.set()
        await process.lifecycle.shutdown()
        assert call.ended == "landed"

    process.serve(main)


@pytest.mark.parametrize("second", BOTH)
def test_a_second_signal_reaches_the_server_at_once(second: signal.Signals) -> None:
    process = Process()

    async def main() -> None:
        call = process.start()
        signal.raise_signal(signal.SIGINT)
        assert process.received == []
        signal.raise_signal(second)
        assert process.received == [second]
        call.gate.set()

    process.serve(main)


def test_a_handler_of_the_loop_is_called_too() -> None:
    process = Process()

    async def main() -> None:
        called = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, called.set)
        call = process.start()
        signal.raise_signal(signal.SIGTERM)
        await called.wait()
        assert process.lifecycle.is_draining()
        call.gate.set()

    process.serve(main)


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_process_without_a_handler_for_sigterm_keeps_its_default(before: signal.Handlers) -> None:
    process = Process()

    async def main() -> None:
        signal.signal(signal.SIGTERM, before)
        handler = signal.getsignal(signal.SIGINT)
        process.start().gate.set()
        assert signal.getsignal(signal.SIGTERM) is before
        assert signal.getsignal(signal.SIGINT) is handler

    process.serve(main)


def test_sigint_raises_keyboard_interrupt_without_a_handler_of_the_server() -> None:
    process = Process()

    async def main() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process.start().gate.set()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) != process.handle

    process.serve(main)


def test_handlers_are_chained_once_however_many_calls_and_loops_there_are() -> None:
    process = Process()

    async def main() -> None:
        process.start().gate.set()
        ours = signal.getsignal(signal.SIGTERM)
        for number in (1, 2):
            process.start().gate.set()
            await asyncio.to_thread(asyncio.run, elsewhere())
            assert signal.getsignal(signal.SIGTERM) is ours, number

    async def elsewhere() -> None:
        process.start().gate.set()

    process.serve(main)


def test_another_thread_chains_no_handler() -> None:
    process = Process()

    async def elsewhere() -> None:
        process.start().gate.set()
        await turns()

    async def main() -> None:
        handler = signal.getsignal(signal.SIGTERM)
        await asyncio.to_thread(asyncio.run, elsewhere())
        assert signal.getsignal(signal.SIGTERM) is handler

    process.serve(main)


def test_every_loop_of_the_process_drains() -> None:
    process = Process()
    ready, called = threading.Event(), threading.Event()

    async def elsewhere() -> None:
        received = asyncio.Event()
        process.lifecycle.add_drain_callback(received.set)
        ready.set()
        await received.wait()
        assert process.lifecycle.is_draining()
        called.set()

    async def main() -> None:
        process.start().gate.set()
        other = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
        await asyncio.to_thread(ready.wait, WAIT_SECONDS)
        signal.raise_signal(signal.SIGTERM)
        await other
        await process.finish.wait()

    process.serve(main)
    assert called.is_set()


def test_calls_beyond_the_grace_are_aborted_and_the_server_receives_the_signal(clock: Clock) -> None:
    process = Process(grace=30)

    async def main() -> None:
        call = process.start()
        signal.raise_signal(signal.SIGTERM)
        await clock.advance(29)
        assert call.ended == ""
        await clock.advance_until(process.finish.is_set)
        assert call.ended == "shut down"

    process.serve(main)


def test_a_call_that_cannot_be_aborted_does_not_block_the_shutdown(clock: Clock) -> None:
    process = Process(grace=0)

    async def main() -> None:
        call = process.start(ends=False)
        signal.raise_signal(signal.SIGTERM)
        await clock.advance_until(process.finish.is_set, module.UNWIND_TIMEOUT_SECONDS)
        assert call.ended == "shut down"
        assert not call.is_answered
        call.gate.set()

    process.serve(main)


def test_lifespans_exit_after_the_calls_and_before_the_signal() -> None:
    process, log = Process(), Log()
    server = make_server(lifespan=log.lifespan())
    process.lifecycle.add_server(server)

    async def main() -> None:
        call = process.start()
        await server.lifespan.enter()
        signal.raise_signal(signal.SIGTERM)
        await turns()
        assert log == ["in"]
        call.gate.set()
        await process.finish.wait()
        assert log == ["in", "out"]

    process.serve(main)


def test_lifespan_shutdown_waits_for_disconnected_calls_and_aborts_them_after_the_grace(clock: Clock) -> None:
    process = Process(grace=30)

    async def main() -> None:
        await process.lifecycle.startup(())
        call = process.start()
        closing = asyncio.create_task(process.lifecycle.shutdown())
        await clock.advance(29)
        assert call.ended == ""
        await clock.advance_until(closing.done)
        assert call.ended == "shut down"
        assert process.lifecycle.is_draining()
        assert process.closed == [asyncio.get_running_loop()]

    process.serve(main)


async def test_drain_callbacks_run_once_when_draining_begins() -> None:
    process, received = Process(), []
    taken_back = process.lifecycle.add_drain_callback(lambda: received.append("taken back"))
    process.lifecycle.add_drain_callback(lambda: received.append("first"))
    taken_back()
    await process.lifecycle.shutdown()
    assert received == ["first"]
    process.lifecycle.add_drain_callback(lambda: received.append("late"))()
    assert received == ["first", "late"]


async def test_a_failing_drain_callback_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    process, received = Process(), []

    def fail() -> None:
        raise RuntimeError("the stream is broken")

    process.lifecycle.add_drain_callback(fail)
    process.lifecycle.add_drain_callback(lambda: received.append("other"))
    await process.lifecycle.shutdown()
    assert received == ["other"]
    assert "the stream is broken" in caplog.text


async def test_a_drained_loop_may_serve_again() -> None:
    process = Process()
    for _ in range(2):
        await process.lifecycle.startup(())
        assert not process.lifecycle.is_draining()
        await process.lifecycle.shutdown()
        assert process.lifecycle.is_draining()


def test_a_drained_loop_does_not_drain_another() -> None:
    process = Process()
    process.serve(process.lifecycle.shutdown)

    async def main() -> None:
        assert process.lifecycle.has_started_draining
        assert not process.lifecycle.is_draining()

    process.serve(main)


@pytest.mark.parametrize("scoped", [True, False])
def test_a_closed_loop_is_not_referenced(scoped: bool) -> None:
    process = Process()

    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        call = process.start()
        if scoped:
            await process.lifecycle.startup(())
        call.gate.set()
        assert call.task is not None
        await call.task
        process.lifecycle.active.clear()
        signal.raise_signal(signal.SIGTERM)
        if scoped:
            await process.lifecycle.shutdown()
        await process.finish.wait()
        process.closed.clear()
        process.finish = asyncio.Event()  # the old handler calls the loop, too
        return weakref.ref(asyncio.get_running_loop())

    loop = process.serve(main)
    gc.collect()
    assert loop() is None


async def test_entered_lifespans_are_exited_when_another_fails() -> None:
    process, log = Process(), Log()
    good, bad = make_server(lifespan=log.lifespan()), make_server(lifespan=broken, alias="shop")
    for server in (good, bad):
        process.lifecycle.add_server(server)
    with pytest.raises(RuntimeError, match='"shop" failed at startup: ValueError: no such warehouse'):
        await process.lifecycle.startup([good, bad])
    assert log == ["in", "out"]


def broken(server: Any) -> Any:
    raise ValueError("no such warehouse")
