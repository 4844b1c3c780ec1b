"""A run: its plan from a seed, the deployment and the client, and the rows at the end."""

import asyncio
import random
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_django.protocol import jsonrpc
from tests.load.random_tasks.client import Call, Job, TaskClient
from tests.load.random_tasks.deployment import OLD, SERVERS, WORKERS, Deployment, deploy
from tests.load.random_tasks.faults import Fault, FaultStep, plan_faults
from tests.load.random_tasks.judge import MAX_BLOCK_RATIO, TaskRecord, ToolTraits, Verdict, judge
from tests.load.task_site.journal import Entry, read_journal
from tests.support.own_postgres import OwnPostgres
from tests.support.waiting import WAIT_SECONDS

LEASE_SECONDS = 6.0
CLOCK_DIFFERENCE_SECONDS = 30.0
TOOLS = {
    f"{name}{suffix}": ToolTraits(
        may_repeat=bool(suffix), is_atomic=name.startswith("book"), is_plain=name.endswith("blocking")
    )
    for name in ("count", "count_blocking", "ask", "book", "book_blocking", "added")
    for suffix in ("", "_again")
} | {"block": ToolTraits()}
WEIGHTS = {"block": 0.3, "added": 0.4, "added_again": 0.4}
"""Weights of tools that are called less often than others."""
LONG_WORK_RATIO = 0.06
"""Share of the calls that work for longer than a lease."""
END_SECONDS = 5 * WAIT_SECONDS
"""Seconds after the last fault in which each task has to end."""
METER_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The verdict on a run, and its numbers."""

    verdict: Verdict
    statuses: dict[tuple[str, str], int]
    """Number of tasks by tool and status."""
    faults: list[Fault]
    entries: list[Entry]
    acknowledged: int
    unacknowledged: int
    delay: float
    """Longest seconds for which the machine did not run a thread that was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomRun:
    """A run that its seed repeats: the same calls and faults at the same times."""

    seed: int
    tasks: int
    seconds: float
    lease: float = LEASE_SECONDS
    clock_difference: float = CLOCK_DIFFERENCE_SECONDS
    """Seconds by which clocks are late or early."""

    def plan_jobs(self) -> list[Job]:
        """Plan the calls, evenly over the time of the run."""
        chance = random.Random(f"jobs {self.seed}")
        names = list(TOOLS)
        weights = [WEIGHTS.get(name, 1.0) for name in names]
        jobs = []
        for number in range(self.tasks):
            (tool,) = chance.choices(names, weights)
            seconds = chance.uniform(0.2, 4.0)
            if tool == "block" or chance.random() < LONG_WORK_RATIO:
                seconds = chance.uniform(1.1, MAX_BLOCK_RATIO) * self.lease
            jobs.append(Job(number, number / self.tasks * self.seconds, tool, seconds))
        return jobs

    def plan_faults(self) -> list[FaultStep]:
        """Plan the faults."""
        chance = random.Random(f"faults {self.seed}")
        processes = [*SERVERS, *WORKERS]
        return plan_faults(chance, seconds=self.seconds, lease=self.lease, processes=processes, old=OLD)

    def plan_clocks(self) -> dict[str, float]:
        """Plan the seconds by which the clock of each process is wrong: one is late and one early at least."""
        chance = random.Random(f"clocks {self.seed}")
        names = chance.sample([*SERVERS, *WORKERS], len(SERVERS) + len(WORKERS))
        signs = [-1, 1, *chance.choices([-1, 0, 1], k=len(names) - 2)]
        return {name: sign * self.clock_difference for name, sign in zip(names, signs, strict=True)}

    def run(self, directory: Path) -> Figures:
        """Run until each task has ended; return the figures."""
        with deploy(directory, self.plan_clocks(), lease=self.lease) as deployment:
            client = TaskClient(list(deployment.ports.values()), random.Random(f"client {self.seed}"))
            with DelayMeter() as meter:
                asyncio.run(self._drive(deployment, client))
            records = read_records(deployment.postgres, client)
        entries = read_journal(deployment.journal)
        return Figures(
            verdict=judge(records, entries, deployment.faults, TOOLS, lease=self.lease),
            statuses=Counter((record.tool, record.status) for record in records),
            faults=deployment.faults,
            entries=entries,
            acknowledged=len(client.task_ids),
            unacknowledged=len(records) - len(client.task_ids),
            delay=meter.longest,
        )

    async def _drive(self, deployment: Deployment, client: TaskClient) -> None:
        supervision = asyncio.create_task(deployment.supervise())
        await client.wait_until_served()
        calls = asyncio.create_task(client.run(self.plan_jobs()))
        await asyncio.to_thread(self._inject_faults, deployment)
        await asyncio.wait([calls], timeout=self.seconds + END_SECONDS)
        calls.cancel()
        supervision.cancel()
        await asyncio.wait([calls, supervision])
        if not calls.cancelled():
            calls.result()

    def _inject_faults(self, deployment: Deployment) -> None:
        with ThreadPoolExecutor() as pool:
            for step in self.plan_faults():
                time.sleep(step.gap)
                list(pool.map(deployment.inject, step.faults))


class DelayMeter:
    """Measures for how long a thread that is due does not run, as on a busy machine."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def __enter__(self) -> "DelayMeter":
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        self._thread.join()

    def _measure(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(METER_SECONDS):
            now = time.monotonic()
            self.longest = max(self.longest, now - before - METER_SECONDS)
            before = now


def read_records(postgres: OwnPostgres, client: TaskClient) -> list[TaskRecord]:
    """Return all tasks of a client, and those that it does not know of because a call got no answer."""
    rows = {}
    statement = """
        SELECT arguments, status, is_error, result, error,
            (SELECT count(*) FROM mcp_tasks_taskattempt a WHERE a.task_id = t.id AND a.outcome = 'suspended')
        FROM mcp_tasks_task t
    """
    for arguments, status, is_error, result, error, rounds in postgres.query(statement):
        text = jsonrpc.loads(str(result))["content"][0]["text"] if result else ""
        row = {"status": status, "is_error": is_error, "message": error or text, "rounds": rounds}
        run = "" if is_error or not text else text.split()[-1]
        rows[jsonrpc.loads(str(arguments))["number"]] = {**row, "run": run}
    bookings: dict[int, list[str]] = defaultdict(list)
    for number, run in postgres.query("SELECT number, run FROM task_site_booking"):
        bookings[int(str(number))].append(str(run))
    return [_build_record(call, rows.get(call.number), bookings[call.number], client) for call in client.calls]


def _build_record(call: Call, row: dict[str, Any] | None, bookings: list[str], client: TaskClient) -> TaskRecord:
    return TaskRecord(
        number=call.number,
        tool=call.tool,
        created=call.created,
        bookings=tuple(bookings),
        is_acknowledged=call.number in client.task_ids,
        seen=client.statuses.get(call.number, ""),
        **(row or {"status": ""}),
    )
