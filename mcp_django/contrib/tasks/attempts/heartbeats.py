"""Leases that this process holds: one statement extends them all, from a thread of its own.

A tool that blocks the event loop therefore loses neither its own task nor its neighbours'. Each lease has a deadline,
which is earlier than the time in the row: it counts from the moment before the statement was sent. A process that
cannot extend a lease, or was paused, stops the attempt at the deadline, before another process may begin the next one.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp_django.contrib.tasks.attempts.blocked_loops import BlockedLoops
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import store
from mcp_django.contrib.tasks.rows.database import AVAILABILITY
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.event_loop import (
    call_threadsafe,
    clean_thread,
    is_async_to_sync_loop,
    monotonic,
    start_task,
    start_timer,
    wait_for_event,
)

logger = get_logger("mcp_django.tasks")
MAX_BEATS_PER_LEASE = 4
"""Number of heartbeats in the time of a lease."""
RETRY_SECONDS = 1.0
"""Seconds between two heartbeats while the database fails."""
MARGIN_RATIO = 0.1
"""Part of a lease by which its deadline is earlier."""
MAX_MARGIN_SECONDS = 3.0


def get_usable_seconds(lease: float) -> float:
    """Return the seconds after a heartbeat for which an attempt may run."""
    return lease - min(lease * MARGIN_RATIO, MAX_MARGIN_SECONDS)


class TaskLease:
    """The lease of a task from its claim on, whose attempt runs on `loop`."""

    def __init__(self, task: Task, loop: asyncio.AbstractEventLoop) -> None:
        self.id = task.pk
        self.worker = task.worker
        self.tool = task.tool
        self.loop = loop
        self.deadline = task.lease_sent + get_usable_seconds(get_settings().lease)
        """Time of `monotonic` at which the attempt has to stop, unless a heartbeat extends the lease."""
        self.is_lost = False
        """True if the row belongs to the worker no more."""
        self.is_confirmed = False
        """True once the result is in the row, so that no other attempt may begin.

        The row of an atomic tool is locked until its transaction is committed.
        """
        self.result: Mapping[str, Any] | None = None
        """Columns of the result of a plain function that has ended, until they are stored."""
        self._stop: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def is_over(self) -> bool:
        """Return True if another attempt of the task may run now. Thread-safe."""
        return self.is_lost or (not self.is_confirmed and monotonic() >= self.deadline)

    def watch(self, stop: Callable[[], object]) -> None:
        """Call `stop` once, as soon as the lease is over.

        Timers that are due run in the order of their times. After a pause of the process this one therefore runs
        before a later one of the tool.
        """
        self._stop = stop
        if self.is_lost:
            self._stop_attempt()
        else:
            self._start_timer()

    def end(self) -> None:
        """Watch no more, because the attempt has ended."""
        self._stop = None
        if self._timer is not None:
            self._timer.cancel()

    def lose(self) -> None:
        """Stop the attempt, whose row another process has changed. Thread-safe."""
        if not self.is_lost:
            self.is_lost = True
            call_threadsafe(self.loop, self._stop_attempt)

    def _start_timer(self) -> None:
        self._timer = start_timer(max(0.0, self.deadline - monotonic()), self._check)

    def _check(self) -> None:
        if self.is_confirmed:
            return
        if self.is_over():
            HEARTBEATS.replace_blocked_thread()
            self._stop_attempt()
        else:
            self._start_timer()

    def _stop_attempt(self) -> None:
        stop = self._stop
        self._stop = None
        if stop is not None:
            stop()


def extend_leases(leases: Sequence[TaskLease]) -> None:
    """Extend leases by one statement, and stop the attempts that have lost theirs. Blocking.

    Raises DatabaseError.
    """
    seconds = get_settings().lease
    # Before the statement is sent: however long it takes, the row is valid for longer than the deadline.
    deadline = monotonic() + get_usable_seconds(seconds)
    extension = store.extend_leases({(lease.id, lease.worker) for lease in leases}, seconds)
    for lease in leases:
        if (lease.id, lease.worker) in extension.lost:
            lease.lose()
        elif (lease.id, lease.worker) in extension.extended:
            lease.deadline = max(lease.deadline, deadline)


def store_results(leases: Sequence[TaskLease]) -> None:
    """Store the results that the event loop has not stored since the last heartbeat. Blocking.

    The functions have ended on their threads, but a tool blocks the loop. If the process is then cut off or killed,
    another one completes the tasks. Raises DatabaseError.
    """
    for lease in leases:
        if (values := lease.result) is not None:
            lease.is_confirmed = store.commit_result(lease.id, lease.worker, values) or lease.is_confirmed
            lease.result = None


class Heartbeats:
    """The heartbeats of a process. Its thread ends when there is no lease."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: set[TaskLease] = set()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._started: float | None = None
        """Time at which the running statement was sent; None between two statements."""
        self._loops = BlockedLoops()

    def hold(self, lease: TaskLease) -> None:
        """Extend a lease until `release`."""
        with self._lock:
            if self._pid != os.getpid():  # a forked process has no thread, and no attempts
                self._pid = os.getpid()
                self._leases.clear()
                self._thread = None
            self._leases.add(lease)
            if self._thread is None or self._is_blocked():
                self._start_thread()

    def release(self, lease: TaskLease) -> None:
        """Extend a lease no more."""
        with self._lock:
            self._leases.discard(lease)

    def request(self) -> None:
        """Send the next heartbeat now, which finds out whether a task was cancelled."""
        self._wake.set()

    def replace_blocked_thread(self) -> None:
        """Start another thread if this one waits for a database that does not answer.

        The connection of the thread may be dead for many minutes, until the operating system gives it up.
        """
        with self._lock:
            if self._leases and self._is_blocked():
                self._start_thread()

    def _is_blocked(self) -> bool:
        return self._started is not None and monotonic() - self._started > get_settings().lease / MAX_BEATS_PER_LEASE

    def _start_thread(self) -> None:
        self._started = None
        self._thread = threading.Thread(target=self._run, name="mcp-tasks-heartbeats", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pause = get_settings().lease / MAX_BEATS_PER_LEASE
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            with self._lock:
                if self._thread is not threading.current_thread():
                    break
                leases = list(self._leases)
                if not leases:
                    self._thread = None
                    break
                self._started = monotonic()
            pause = self._beat(leases)
            with self._lock:
                if self._thread is threading.current_thread():
                    self._started = None
            self._loops.check({lease.loop: [one.tool for one in leases if one.loop is lease.loop] for lease in leases})
        clean_thread(close_all=True)

    def _beat(self, leases: Sequence[TaskLease]) -> float:
        """Extend leases, and return the seconds until the next time."""
        clean_thread()
        try:
            AVAILABILITY.observe(extend_leases, leases)
            store_results(leases)
        except Exception:
            logger.warning("Leases of tasks could not be extended; it is repeated", exc_info=True)
            return RETRY_SECONDS
        finally:
            clean_thread()
        return get_settings().lease / MAX_BEATS_PER_LEASE


HEARTBEATS = Heartbeats()
"""The heartbeats of this process."""


class LeaseHolder:
    """Holder of the lease of one attempt, for the time of a `with` block."""

    def __init__(self, lease: TaskLease, stop: Callable[[], object]) -> None:
        self.lease = lease
        self._stop = stop
        self._wake = asyncio.Event()
        self._beats: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self.lease.watch(self._stop)
        if is_async_to_sync_loop():
            # The rows may be visible on the thread of the caller only, as in a test case.
            self._beats = start_task(self._beat_on_loop())
        else:
            HEARTBEATS.hold(self.lease)

    def __exit__(self, *problem: object) -> None:
        self.lease.end()
        HEARTBEATS.release(self.lease)
        if self._beats is not None:
            self._beats.cancel()

    def request_beat(self) -> None:
        """Send the next heartbeat now."""
        self._wake.set()
        HEARTBEATS.request()

    async def _beat_on_loop(self) -> None:
        pause = get_settings().lease / MAX_BEATS_PER_LEASE
        while not self.lease.is_lost:
            await wait_for_event(self._wake, pause)
            self._wake.clear()
            try:
                await store.run_on_rows(extend_leases, [self.lease])
                pause = get_settings().lease / MAX_BEATS_PER_LEASE
            except Exception:
                logger.warning("The lease of a task could not be extended; it is repeated", exc_info=True)
                pause = RETRY_SECONDS
