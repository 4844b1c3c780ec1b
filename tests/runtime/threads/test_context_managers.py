"""Context managers on the thread of a call: entered there, and left in every case."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.local import Local
from asgiref.sync import async_to_sync
from django.db import connection

from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.ports import Overloaded
from tests.runtime.serving import Gate, eventually, real_threads, serve, start_call

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
THREAD = threading.local()
LOCAL = Local()


class Paint:
    """A context manager that sets variables of all kinds and records its steps."""

    def __init__(self, colour: str = "red", *, entering: Any = None, leaving: Any = None) -> None:
        self.colour, self.entering, self.leaving = colour, entering, leaving
        self.steps: list[Any] = []

    def __call__(self) -> "Paint":
        return self

    def __enter__(self) -> None:
        self.steps.append("entered")
        self.thread = threading.current_thread()
        if self.entering is not None:
            self.entering()
        self.token = COLOUR.set(self.colour)
        LOCAL.colour = THREAD.colour = self.colour

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> Any:
        assert threading.current_thread() is self.thread
        self.seen = get_colours()
        COLOUR.reset(self.token)
        del LOCAL.colour, THREAD.colour
        self.steps.append("left" if kind is None else kind.__name__)
        return None if self.leaving is None else self.leaving()


def get_colours() -> tuple[str, str, str]:
    return COLOUR.get(), getattr(LOCAL, "colour", "none"), getattr(THREAD, "colour", "none")


NONE, RED = ("none", "none", "none"), ("red", "red", "red")


def test_plain_functions_inside_see_variables_of_all_kinds() -> None:
    async def main(executor: LeasingExecutor) -> Any:
        with executor.context():
            paint = Paint()
            inside = await executor.run_within([paint], lambda: executor.run(get_colours))
            return inside, await executor.run(get_colours), get_colours(), paint.steps

    assert serve(main) == (RED, NONE, NONE, ["entered", "left"])


def test_coroutines_inside_see_context_variables() -> None:
    async def main(executor: LeasingExecutor) -> Any:
        async def run() -> Any:
            return COLOUR.get(), LOCAL.colour

        with executor.context():
            return await executor.run_within([Paint()], run)

    assert serve(main) == ("red", "red")


def test_managers_see_the_variables_that_the_block_sets() -> None:
    async def main(executor: LeasingExecutor) -> Any:
        async def run() -> None:
            COLOUR.set("blue")
            await executor.run(setattr, LOCAL, "colour", "green")

        paint = Paint()
        with executor.context():
            await executor.run_within([paint], run)
        return paint.seen

    assert serve(main) == ("blue", "green", "red")


def test_managers_run_on_the_callers_own_thread() -> None:
    paint = Paint()

    async def main() -> Any:
        executor = LeasingExecutor()
        return await executor.run_within([paint], lambda: executor.run(get_colours))

    assert async_to_sync(main)() == RED
    assert paint.thread is threading.current_thread()
    assert (get_colours(), paint.steps) == (NONE, ["entered", "left"])


def test_managers_get_the_exception_of_the_block() -> None:
    async def main(executor: LeasingExecutor) -> Any:
        paint = Paint()
        with executor.context(), pytest.raises(ZeroDivisionError):
            await executor.run_within([paint], lambda: executor.run(divmod, 1, 0))
        return paint.steps

    assert serve(main) == ["entered", "ZeroDivisionError"]


def test_entered_managers_are_exited_if_a_later_one_fails() -> None:
    async def main(executor: LeasingExecutor) -> Any:
        first, second = Paint(), Paint(entering=lambda: divmod(1, 0))
        with executor.context(), pytest.raises(ZeroDivisionError):
            await executor.run_within([first, second], lambda: executor.run(get_colours))
        return first.steps, second.steps

    assert serve(main) == (["entered", "ZeroDivisionError"], ["entered"])


def test_a_manager_that_suppresses_an_exception_is_an_error() -> None:
    async def main(executor: LeasingExecutor) -> None:
        with executor.context():
            await executor.run_within([Paint(leaving=lambda: True)], lambda: executor.run(divmod, 1, 0))

    with pytest.raises(RuntimeError, match="suppressed"):
        serve(main)


@pytest.mark.parametrize("blocked_at", ["entering", "block"])
def test_a_cancelled_call_ends_at_once_and_its_thread_exits_the_managers(blocked_at: str) -> None:
    async def main(executor: LeasingExecutor) -> Any:
        gate = Gate()
        paint = Paint(entering=gate) if blocked_at == "entering" else Paint()

        async def call() -> None:
            with executor.context():
                await executor.run_within([paint], lambda: executor.run(gate))

        task = start_call(call())
        await gate.until_reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        before = list(paint.steps)
        gate.opened.set()
        with executor.context():
            after = await executor.run(get_colours)
        return before, paint.steps, after

    assert serve(main, threads=1) == (["entered"], ["entered", "CancelledError"], NONE)


def test_a_failure_of_a_manager_after_its_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main(executor: LeasingExecutor) -> None:
        gate, paint = Gate(), Paint(leaving=lambda: divmod(1, 0))

        async def call() -> None:
            with executor.context():
                await executor.run_within([paint], lambda: executor.run(gate))

        task = start_call(call())
        await gate.until_reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.opened.set()
        with executor.context():
            await executor.run(get_colours)

    serve(main, threads=1)
    assert "Context manager around a cancelled handler failed" in caplog.text


@real_threads
def test_sql_of_managers_of_a_cancelled_call_is_refused() -> None:
    @contextmanager
    def write() -> Iterator[None]:
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            ran.append(True)

    ran: list[bool] = []

    async def main(executor: LeasingExecutor) -> None:
        gate = Gate()

        def hold() -> None:
            connection.ensure_connection()
            gate()

        async def call() -> None:
            with executor.context():
                await executor.run_within([write], lambda: executor.run(hold))

        task = start_call(call())
        await gate.until_reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.opened.set()
        with executor.context():
            await executor.run(get_colours)

    serve(main, threads=1)
    assert ran == []


def test_a_wait_keeps_the_thread_of_the_managers_but_frees_its_place() -> None:
    async def main(executor: LeasingExecutor) -> Any:
        async def run() -> Any:
            first = await executor.run(threading.current_thread)
            executor.release_thread()
            executor.release_thread()  # entering it twice counts once
            usage = executor.get_usage()
            other = await start_call(ask())
            return await executor.run(get_colours), first is await executor.run(threading.current_thread), usage, other

        async def ask() -> Any:
            with executor.context():
                return await executor.run(get_colours)

        with executor.context():
            inside = await executor.run_within([Paint()], run)
        return inside, executor.get_usage()

    (colours, is_same, usage, other), end = serve(main, threads=1)
    assert (colours, is_same, other) == (RED, True, NONE)
    assert (usage.busy, usage.blocked) == (0, 1)
    assert (end.busy, end.blocked) in {(0, 0), (1, 0)}


def test_a_call_that_ends_in_a_wait_gives_its_thread_back() -> None:
    async def main(executor: LeasingExecutor) -> Any:
        paint, waiting = Paint(), asyncio.Event()

        async def run() -> None:
            executor.release_thread()
            waiting.set()
            await asyncio.Event().wait()

        async def call() -> None:
            with executor.context():
                await executor.run_within([paint], run)

        task = start_call(call())
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: executor.get_usage().blocked == executor.get_usage().busy == 0)
        with executor.context():
            return paint.steps, await executor.run(get_colours)

    assert serve(main, threads=1) == (["entered", "CancelledError"], NONE)


def test_one_wait_too_many_is_refused() -> None:
    async def main(executor: LeasingExecutor) -> Any:
        async def run() -> None:
            executor.release_thread()

        paint = Paint()
        with executor.context(), pytest.raises(Overloaded):
            await executor.run_within([paint], run)
        return paint.steps

    assert serve(main, parked=0) == ["entered", "Overloaded"]
