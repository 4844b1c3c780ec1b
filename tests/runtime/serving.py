"""A loop with threads, as a server has one, and ways to block its threads in Python and in SQL."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from django.db import connection

from mcp_django.aio import clock as package_clock
from mcp_django.runtime.threads.executor import LeasingExecutor
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS, eventually, wait_until

__all__ = ["WAIT_SECONDS", "eventually", "wait_until"]

T = TypeVar("T")
real_threads = pytest.mark.django_db(transaction=True)


def serve(
    main: Callable[[LeasingExecutor], Awaitable[T]],
    *,
    threads: int = 2,
    queue: int = 2,
    parked: int = 256,
    interrupt: bool = True,
) -> T:
    """Run `main` on a loop of its own, as a server does, and end the threads afterwards.

    The `clock` of the test, if it has one, controls the loop.
    """
    executor = LeasingExecutor(max_threads=threads, max_queued=queue, max_blocked=parked, interrupts_sql=interrupt)

    async def controlled() -> T:
        clock = getattr(package_clock.source, "__self__", None)
        if isinstance(clock, Clock):
            clock.control(asyncio.get_running_loop())
        try:
            return await main(executor)
        finally:
            executor.close(timeout=WAIT_SECONDS)

    return asyncio.run(controlled())


def start_call(coroutine: Any) -> "asyncio.Task[Any]":
    """Start the coroutine as the runtime starts a call: as a task in a clean context."""
    return asyncio.Task(coroutine, loop=asyncio.get_running_loop(), context=contextvars.Context())


class Gate:
    """Blocks a function in its thread until the test opens the gate."""

    def __init__(self) -> None:
        self.reached, self.opened, self.threads = threading.Event(), threading.Event(), list[threading.Thread]()

    def __call__(self) -> str:
        self.threads.append(threading.current_thread())
        self.reached.set()
        assert self.opened.wait(WAIT_SECONDS)
        return "through"

    async def until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, WAIT_SECONDS)


def sql(seconds: float = 60) -> str:
    """Build a statement that keeps the database busy for so long; on SQLite about."""
    if connection.vendor == "postgresql":
        return f"SELECT pg_sleep({seconds})"
    rows = int(seconds * 5_000_000)
    return f"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {rows}) SELECT count(*) FROM n"


def run_sql(statement: str) -> str:
    """Execute the statement on the connection of this thread."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        cursor.fetchall()
    return "ran"


class Statement:
    """A statement that takes a minute; records whether it has begun, and its outcome."""

    def __init__(self, statement: str | None = None) -> None:
        self.statement = sql() if statement is None else statement
        self.begun = threading.Event()
        self.outcome: Any = None
        self.ended = threading.Event()

    def __call__(self) -> None:
        def passing(execute: Any, *args: Any) -> Any:
            self.begun.set()
            return execute(*args)

        try:
            with connection.execute_wrapper(passing):
                self.outcome = run_sql(self.statement)
        except BaseException as problem:
            self.outcome = type(problem)
            raise
        finally:
            self.ended.set()

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, WAIT_SECONDS)

    async def until_ended(self) -> None:
        assert await asyncio.to_thread(self.ended.wait, WAIT_SECONDS)
