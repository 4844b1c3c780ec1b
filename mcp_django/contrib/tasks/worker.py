"""Worker processes: `manage.py mcp_worker` claims waiting tasks and runs their attempts.

Any number of processes may run on any machines. A stopped worker finishes its attempts; a killed one loses its leases,
and the next maintenance of any process repeats or fails its tasks.
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_django import wiring
from mcp_django.contrib.tasks import upkeep
from mcp_django.contrib.tasks.attempts import runner
from mcp_django.contrib.tasks.attempts.claims import ClaimedTask, claim_tasks
from mcp_django.contrib.tasks.backend import TaskBackend, get_backend
from mcp_django.contrib.tasks.models import Task, TaskWorker
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import leases, store
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.event_loop import start_task, wait_for_event

logger = get_logger("mcp_django.tasks")
REPORT_SECONDS = 10.0
"""Seconds between two reports of the worker in its row."""
RETRY_SECONDS = 2.0
"""Seconds to wait after the database failed."""
MAX_CLAIMED_TASKS = 16
"""Maximum tasks of one claim. The rest stays for other workers."""
UNWIND_SECONDS = 2.0
"""Maximum seconds for cancelled attempts to store their end."""


class WorkerBackend(TaskBackend):
    """The backend without attempts in serving processes. A call waits for its row during the grace."""

    delivers_to_workers = False

    async def enqueue(self, task: Task) -> None:
        """Return at once: workers find the committed row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker process."""

    queues: tuple[str, ...] | None = None
    """Names of the queues; None for all."""
    concurrency: int = 16
    """Maximum attempts at once."""
    poll: float = 0.5
    """Seconds between two searches while no task waits."""
    drain: float = 30.0
    """Seconds for running attempts to end after a stop."""
    is_burst: bool = False
    """True to end as soon as no task waits."""


class WorkerStartError(Exception):
    """A lifespan of a server failed at the start; the text gives the reason."""


class WorkerProcess:
    """The attempts of one process, from the start to the end of its loop."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._running: set[asyncio.Task[None]] = set()
        self._finished_count = 0
        self._wake = asyncio.Event()
        self.is_stopping = False
        """True after the first `stop`."""
        self._row = TaskWorker(
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            queues=" ".join(options.queues or ()),
            concurrency=options.concurrency,
        )

    def stop(self) -> None:
        """Claim no more tasks, and end after the running attempts. A second call cancels the attempts."""
        if self.is_stopping:
            self._cancel_attempts()
        self.is_stopping = True
        self._wake.set()

    async def run(self) -> int:
        """Serve until `stop`, or in a burst until no task waits; return the number of attempts that ended.

        Raises WorkerStartError.
        """
        lifecycle = wiring.get_services().lifecycle
        try:
            await lifecycle.startup([wiring.get_server(alias) for alias in wiring.list_aliases()])
        except RuntimeError as problem:
            raise WorkerStartError(str(problem)) from problem
        helpers = [start_task(self._report_regularly()), start_task(self._maintain_regularly())]

        try:
            await self._claim_tasks()
            await self._drain()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.wait(helpers)
            await self._remove_row()
            await lifecycle.shutdown()
        return self._finished_count

    async def _claim_tasks(self) -> None:
        while not self.is_stopping:
            self._wake.clear()
            places = self._options.concurrency - len(self._running)
            if places <= 0:
                await self._wake.wait()
                continue

            try:
                tasks = await self._claim(min(places, MAX_CLAIMED_TASKS))
            except Exception:
                logger.exception("Waiting tasks could not be read; it is repeated")
                await wait_for_event(self._wake, RETRY_SECONDS)
                continue

            for task in tasks:
                self._start(task)
            if tasks:
                continue
            if self._options.is_burst and not self._running:
                return
            await wait_for_event(self._wake, self._options.poll)

    async def _claim(self, limit: int) -> list[ClaimedTask]:
        worker, lease = leases.create_worker_name(), get_settings().lease

        def claim() -> list[Task]:
            if self.is_stopping:
                return []
            return leases.claim_next_tasks(self._options.queues, worker=worker, lease=lease, limit=limit)

        return await claim_tasks(claim, lambda: leases.return_claim(worker))

    def _start(self, claimed: ClaimedTask) -> None:
        execution = start_task(runner.run_claimed_task(claimed))
        self._running.add(execution)
        execution.add_done_callback(self._on_ended)

    def _on_ended(self, execution: "asyncio.Task[None]") -> None:
        self._running.discard(execution)
        self._finished_count += 1
        self._wake.set()
        if not execution.cancelled() and (problem := execution.exception()) is not None:
            logger.error("The end of an attempt could not be stored; its lease expires", exc_info=problem)

    async def _drain(self) -> None:
        """Wait for the running attempts, and cancel them after `drain` seconds."""
        if not self._running:
            return
        logger.info("The worker stops: %d attempts have %g seconds to end", len(self._running), self._options.drain)
        await asyncio.wait(self._running, timeout=self._options.drain)

        if self._running:
            logger.warning("The worker stops: %d attempts were cancelled", len(self._running))
            self._cancel_attempts()
            await asyncio.wait(self._running, timeout=UNWIND_SECONDS)

    def _cancel_attempts(self) -> None:
        for execution in self._running:
            execution.cancel()

    async def _maintain_regularly(self) -> None:
        while True:
            try:
                await upkeep.maintain_tasks(get_backend())
            except Exception:
                logger.exception("Maintenance of tasks failed; it is repeated")
            await asyncio.sleep(upkeep.get_interval())

    async def _report_regularly(self) -> None:
        while True:
            try:
                await store.run_on_rows(leases.report_worker, self._row, len(self._running), self._finished_count)
            except Exception:
                logger.exception("The worker could not report; it is repeated")
            await asyncio.sleep(REPORT_SECONDS)

    async def _remove_row(self) -> None:
        try:
            await store.run_on_rows(leases.remove_worker, self._row)
        except Exception:
            logger.warning("The row of the worker could not be deleted; it expires", exc_info=True)


def parse_queues(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of queues from options, each a name or several with commas; None for all queues."""
    found = [name.strip() for text in names or () for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(found)) or None
