"""Claims: a task is held before its claim returns to the loop, and a claim without a use is given up."""

import asyncio
import queue
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from django.db import DataError, OperationalError

from mcp_django.contrib.tasks.attempts import claims
from mcp_django.contrib.tasks.attempts.claims import claim_tasks
from mcp_django.contrib.tasks.attempts.heartbeats import Heartbeats
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.rows import store
from mcp_django.contrib.tasks.rows.store import LeaseExtension
from tests.support.waiting import WAIT_SECONDS, wait_until

Leases = set[tuple[str, str]]


class Rows:
    """A fake of the rows with one task, whose claim waits for `may_claim`."""

    def __init__(self) -> None:
        self.may_claim = threading.Event()
        self.may_claim.set()
        self.claimed = threading.Event()
        self.beats: queue.Queue[Leases] = queue.Queue()
        self.problems: list[Exception] = []
        self.returned = 0

    def claim(self) -> list[Task]:
        self.claimed.set()
        assert self.may_claim.wait(WAIT_SECONDS)
        for problem in self.problems:
            raise problem
        return [Task(id="a", worker="w", tool="survey")]

    def give_up(self) -> None:
        self.returned += 1

    def extend(self, leases: Leases, lease: float) -> LeaseExtension:
        self.beats.put(set(leases))
        return LeaseExtension(leases, set())


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    rows = Rows()
    monkeypatch.setattr(store, "extend_leases", rows.extend)
    return rows


@pytest.fixture
def heartbeats(monkeypatch: pytest.MonkeyPatch) -> Heartbeats:
    heartbeats = Heartbeats()
    monkeypatch.setattr(claims, "HEARTBEATS", heartbeats)
    return heartbeats


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run on a loop that has threads, as a server has."""
    asyncio.run(coroutine)


def test_a_lease_is_extended_while_the_loop_is_blocked_after_its_claim(rows: Rows, heartbeats: Heartbeats) -> None:
    async def block() -> None:
        claiming = asyncio.ensure_future(claim_tasks(rows.claim, rows.give_up))
        while not rows.claimed.is_set():
            await asyncio.sleep(0)
        heartbeats.request()
        assert rows.beats.get(timeout=WAIT_SECONDS) == {("a", "w")}  # the loop is blocked by this wait
        ((task, lease),) = await claiming
        assert (task.pk, lease.is_lost) == ("a", False)
        heartbeats.release(lease)
        heartbeats.request()

    run(block())
    assert rows.returned == 0


def test_the_claim_of_a_cancelled_caller_is_given_up(rows: Rows, heartbeats: Heartbeats) -> None:
    rows.may_claim.clear()

    async def cancel() -> None:
        claiming = asyncio.ensure_future(claim_tasks(rows.claim, rows.give_up))
        while not rows.claimed.is_set():
            await asyncio.sleep(0)
        claiming.cancel()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert rows.returned == 0, "it may still be claimed"
        rows.may_claim.set()
        with pytest.raises(asyncio.CancelledError):
            await claiming

    run(cancel())
    assert rows.returned == 1
    heartbeats.request()
    wait_until(lambda: heartbeats._thread is None, "the lease is still held")


@pytest.mark.parametrize(("problem", "count"), [(OperationalError("the answer was lost"), 1), (DataError("no"), 0)])
def test_a_claim_that_may_have_been_committed_is_given_up(rows: Rows, problem: Exception, count: int) -> None:
    rows.problems = [problem]

    async def fail() -> None:
        with pytest.raises(type(problem)):
            await claim_tasks(rows.claim, rows.give_up)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    run(fail())
    assert rows.returned == count
