"""Heartbeats on a thread of their own, the guard of statements, and the warning about blocked loops."""

import asyncio
import queue
import threading
from typing import Any

import pytest
from django.db import OperationalError, connection

from mcp_django.aio.clock import monotonic
from mcp_django.contrib.tasks.attempts import heartbeats as heartbeats_module
from mcp_django.contrib.tasks.attempts.blocked_loops import WARNING_INTERVAL_SECONDS, BlockedLoops
from mcp_django.contrib.tasks.attempts.heartbeats import Heartbeats, TaskLease, extend_leases, get_usable_seconds
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import store
from mcp_django.contrib.tasks.rows.store import LeaseExtension
from mcp_django.runtime.threads.sql_cancellation import CallEndedError, StatementGuard
from mcp_django.server.injection.handler import Handler
from tests.support.background_threads import get_background_threads, wait_for_end
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS

Leases = set[tuple[str, str]]


class Rows:
    """A fake of the rows, which reports each statement, loses the tasks in `lost`, and skips those in `locked`."""

    def __init__(self) -> None:
        self.beats: queue.Queue[Leases] = queue.Queue()
        self.lost: Leases = set()
        self.locked: Leases = set()

    def extend(self, leases: Leases, lease: float) -> LeaseExtension:
        self.beats.put(set(leases))
        return LeaseExtension(leases - self.lost - self.locked, self.lost & leases)

    def wait(self) -> Leases:
        """Block until the next statement."""
        return self.beats.get(timeout=WAIT_SECONDS)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    rows = Rows()
    monkeypatch.setattr(store, "extend_leases", rows.extend)
    return rows


def make_lease(id: str, *, claimed: float = 0.0) -> TaskLease:
    """Return a lease; `claimed` is the time before the statement of its claim was sent."""
    task = Task(id=id, worker="w", tool="survey")
    task.lease_sent = claimed
    return TaskLease(task, asyncio.get_running_loop())


def hang_until(ended: threading.Event, begun: threading.Event) -> Any:
    """Return a fake of `extend_leases` that does not end before the test does."""

    def hang(leases: Leases, lease: float) -> LeaseExtension:
        begun.set()
        ended.wait(2 * WAIT_SECONDS)
        return LeaseExtension(leases, set())

    return hang


async def test_a_deadline_counts_from_the_moment_before_the_claim(clock: Clock) -> None:
    lease = make_lease("a", claimed=clock.monotonic() - 5)
    assert lease.deadline == clock.monotonic() - 5 + get_usable_seconds(get_settings().lease)


async def test_a_deadline_counts_from_the_moment_before_the_heartbeat(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extend_late(leases: Leases, lease: float) -> LeaseExtension:
        clock.move(8)
        return LeaseExtension(leases, set())

    monkeypatch.setattr(store, "extend_leases", extend_late)
    lease, begun = make_lease("a"), clock.monotonic()
    extend_leases([lease])
    assert lease.deadline == begun + get_usable_seconds(get_settings().lease)


async def test_an_attempt_is_stopped_at_the_deadline_of_its_last_heartbeat(rows: Rows, clock: Clock) -> None:
    begun, stops = clock.monotonic(), list[float]()
    lease = make_lease("a", claimed=begun)
    lease.watch(lambda: stops.append(clock.monotonic()))
    await clock.advance(10)
    extend_leases([lease])
    await clock.advance(2 * get_settings().lease)
    assert stops == [begun + 10 + get_usable_seconds(get_settings().lease)]


async def test_the_deadline_of_a_locked_row_is_unchanged(rows: Rows, clock: Clock) -> None:
    rows.locked = {("a", "w")}
    locked, free = make_lease("a"), make_lease("b")
    extend_leases([locked, free])
    assert (locked.is_over(), locked.is_lost, free.is_over()) == (True, False, False)


async def test_an_attempt_that_is_about_to_commit_is_not_stopped_at_its_deadline(clock: Clock) -> None:
    """Its transaction has locked the row, so no other attempt begins."""
    stops = list[float]()
    lease = make_lease("a", claimed=clock.monotonic())
    lease.watch(lambda: stops.append(clock.monotonic()))
    lease.is_confirmed = True
    await clock.advance(get_settings().lease)
    timer = lease._timer
    await clock.advance(get_settings().lease)
    assert (lease.is_over(), stops) == (False, [])
    assert lease._timer is timer, "it checks the deadline again and again"


async def test_a_blocked_loop_extends_its_leases(rows: Rows, clock: Clock) -> None:
    heartbeats, first, second = Heartbeats(), make_lease("a"), make_lease("b")
    first.deadline = second.deadline = clock.monotonic() + 1
    heartbeats.hold(first)
    heartbeats.hold(second)
    for _ in range(3):
        heartbeats.request()
        assert rows.wait() == {("a", "w"), ("b", "w")}  # the loop is blocked by this wait
    assert not first.is_over()
    clock.move(get_usable_seconds(get_settings().lease) - 1)
    heartbeats.release(first)
    heartbeats.request()
    assert rows.wait() == {("b", "w")}
    heartbeats.release(second)
    heartbeats.request()


async def test_a_blocked_loop_stores_the_results_of_its_plain_functions(
    rows: Rows, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write is repeated after a failure, and not after a success."""
    writes, answers = queue.Queue[Any](), [OperationalError("the database restarts"), True]

    def commit_result(*args: Any) -> bool:
        writes.put(args)
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    monkeypatch.setattr(store, "commit_result", commit_result)
    heartbeats, lease = Heartbeats(), make_lease("a", claimed=clock.monotonic())
    lease.result = {"result": "{}"}
    heartbeats.hold(lease)
    for _ in range(2):
        heartbeats.request()
        assert writes.get(timeout=WAIT_SECONDS) == ("a", "w", {"result": "{}"})  # this wait blocks the loop
    rows.beats.queue.clear()
    heartbeats.request()
    rows.wait()
    clock.move(get_settings().lease)
    assert (lease.result, lease.is_over(), writes.empty()) == (None, False, True)
    heartbeats.release(lease)
    heartbeats.request()


async def test_a_lost_lease_stops_its_attempt_alone(rows: Rows) -> None:
    stopped = asyncio.Event()
    heartbeats, now = Heartbeats(), monotonic()
    lost, kept = make_lease("a", claimed=now), make_lease("b", claimed=now)
    lost.watch(stopped.set)
    rows.lost = {("a", "w")}
    heartbeats.hold(lost)
    heartbeats.hold(kept)
    heartbeats.request()
    async with asyncio.timeout(WAIT_SECONDS):
        await stopped.wait()
    assert (lost.is_over(), kept.is_over()) == (True, False)
    heartbeats.release(lost)
    heartbeats.release(kept)
    heartbeats.request()


async def test_a_statement_that_never_ends_delays_no_later_attempt(
    rows: Rows, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection of the thread may be dead without an error."""
    dead, begun, ended = make_lease("a"), threading.Event(), threading.Event()
    heartbeats = Heartbeats()
    with monkeypatch.context() as partition:
        partition.setattr(store, "extend_leases", hang_until(ended, begun))
        heartbeats.hold(dead)
        heartbeats.request()
        assert begun.wait(WAIT_SECONDS)
    clock.move(get_settings().lease)
    later = make_lease("b")
    heartbeats.hold(later)
    heartbeats.request()
    assert rows.wait() == {("a", "w"), ("b", "w")}
    ended.set()
    heartbeats.release(dead)
    heartbeats.release(later)
    wait_for_end(get_background_threads(), heartbeats)  # one of the two takes the request of the other


async def test_a_statement_that_never_ends_is_replaced_at_the_deadline(
    rows: Rows, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other leases of the process are extended, although no attempt begins."""
    begun, ended, heartbeats = threading.Event(), threading.Event(), Heartbeats()
    monkeypatch.setattr(heartbeats_module, "HEARTBEATS", heartbeats)
    dead = make_lease("a", claimed=clock.monotonic())
    with monkeypatch.context() as partition:
        partition.setattr(store, "extend_leases", hang_until(ended, begun))
        heartbeats.hold(dead)
        heartbeats.request()
        assert begun.wait(WAIT_SECONDS)
    dead.watch(lambda: None)
    await clock.advance(get_settings().lease)
    heartbeats.request()
    assert rows.wait() == {("a", "w")}
    heartbeats.release(dead)
    heartbeats.request()
    ended.set()


@pytest.mark.django_db
def test_a_thread_writes_nothing_after_the_end_of_its_attempt() -> None:
    class Attempt:
        has_begun = True
        over = False

        def is_over(self) -> bool:
            return self.over

        async def confirm(self, *args: Any) -> None:
            return None

    guard, attempt = StatementGuard(), Attempt()
    guard.attempt = attempt
    with connection.execute_wrapper(guard):
        assert Task.objects.count() == 0
        attempt.over = True
        with pytest.raises(CallEndedError):
            Task.objects.count()


async def test_a_tool_that_blocks_the_loop_is_named(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    loops, loop = BlockedLoops(), asyncio.get_running_loop()

    def check() -> None:
        thread = threading.Thread(target=loops.check, args=({loop: ["survey"]},))
        thread.start()
        thread.join(WAIT_SECONDS)

    async def survey() -> None:
        """Block the loop, while another thread checks it."""
        check()
        clock.move(5)
        check()
        check()  # too early for another warning

    for _ in range(2):  # the first answer brings the thread of the loop
        check()
        await asyncio.sleep(0)
    assert not caplog.records
    executor: Any = None
    await Handler(survey).run(executor, {})
    (record,) = caplog.records
    text = record.getMessage()
    assert "blocked for 5.0 seconds" in text
    assert "survey)" in text
    assert "running tools: survey" in text
    assert "test_heartbeats.py" in text
    clock.move(WARNING_INTERVAL_SECONDS)
    await Handler(survey).run(executor, {})
    assert len(caplog.records) == 2
