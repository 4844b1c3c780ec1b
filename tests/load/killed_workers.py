"""Tasks of workers that are killed: `python -m tests.load.killed_workers --tasks 500 --kills 60` prints the figures.

Two processes of `mcp_worker` and a Celery worker share the rows. One of them is killed at random each second, every
other time as soon as it runs a task. In the middle PostgreSQL and Redis, both of the run's own, crash and start again.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tests.load.processes import GroupProcess
from tests.servers.databases import ROOT, environment, migrate
from tests.support.own_postgres import OwnPostgres, own_postgres
from tests.support.redis import own_redis
from tests.support.services import postgres_database
from tests.support.waiting import wait_until

SITE = "tests.load.task_site.settings"
KILL_INTERVAL_SECONDS = 1.0
PLACES = 11
"""Tasks that the three workers run at once."""
TOOLS = ("once", "again", "once_blocking")
"""Tools of the site. All but `again` run once at most."""
MCP_WORKER = ["-m", "django", "mcp_worker", "--concurrency", "4", "--poll", "0.2"]
CELERY_WORKER = ["-m", "celery", "-A", "tests.load.task_site.celery_app", "worker", "-P", "prefork", "-c", "3"]
Killed = tuple[float, frozenset[int]]
"""Time of a kill, and the processes that ended."""


class WorkerSet:
    """Running workers. A killed one is replaced by its like."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self._environ = environ
        self._log = log
        self.running: list[GroupProcess] = []

    def start(self, arguments: list[str]) -> None:
        self.running.append(GroupProcess(arguments, self._environ, self._log))

    def replace(self, index: int) -> Killed:
        """Kill a worker with all its processes, and start another one."""
        worker = self.running[index]
        ids = frozenset(worker.list_pids())
        worker.kill()
        killed = time.time()
        worker.start()
        return killed, ids

    def close(self) -> None:
        for worker in self.running:
            worker.kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class KillRun:
    """A run: numbers of tasks, of kills, and of restarts of both services."""

    tasks: int
    kills: int
    restarts: int = 1

    def run(self, directory: Path) -> "Figures":
        """Run until each task has ended; return the figures. Raises AssertionError for a task that does not end."""
        runs, log = directory / "runs", directory / "log"
        runs.touch()
        with ExitStack() as stack:
            redis, postgres = stack.enter_context(own_redis()), stack.enter_context(own_postgres())
            database = {**postgres_database(postgres.url), "OPTIONS": {}}
            migrate(database, SITE)
            environ = {
                **environment(database, SITE),
                "SITE_RUNS": str(runs),
                "SITE_RUN_SECONDS": str(max(1.0, self.kills * KILL_INTERVAL_SECONDS * PLACES / self.tasks)),
                "SITE_BROKER": redis.url.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host="),
            }
            workers = WorkerSet(environ, log)
            stack.callback(workers.close)
            for command in (MCP_WORKER, MCP_WORKER, CELERY_WORKER):
                workers.start(command)
            create = [sys.executable, "-m", "tests.load.task_site.create", str(self.tasks), *TOOLS]
            subprocess.run(create, cwd=ROOT, env=environ, check=True)
            wait_until(lambda: postgres.query("SELECT 1 FROM mcp_tasks_taskattempt LIMIT 1"), log.read_text)

            kills = []
            for number in self._kill(postgres, workers, kills):
                if (number + 1) % (self.kills // (self.restarts + 1)) == 0 and number + 1 < self.kills:
                    for service in (redis, postgres):
                        service.stop()
                        service.start()
            wait_until(
                lambda: count(postgres, "mcp_tasks_task", "status IN ('working', 'input_required')") == 0, log.read_text
            )
            return read_figures(postgres, kills, runs)

    def _kill(self, postgres: OwnPostgres, workers: WorkerSet, kills: list[Killed]) -> Iterator[int]:
        """Kill a worker each second, and yield the number of each kill."""
        chance = random.Random(7)
        for number in range(self.kills):
            time.sleep(KILL_INTERVAL_SECONDS)
            index = chance.randrange(len(workers.running))
            if number % 2 == 0:
                wait_until_busy(postgres, workers.running[index])
            kills.append(workers.replace(index))
            yield number


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The rows after a run, and the starts of the tools."""

    statuses: dict[tuple[str, str], int]
    """Number of tasks by tool and status."""
    outcomes: dict[str, int]
    """Number of attempts by outcome; an attempt without an end has an empty one."""
    errors: dict[str, int]
    starts: dict[str, int]
    """Starts of the tools, by tool and number of the task."""
    kills: list[float]
    """Times of the kills."""
    delays: list[float] = field(default_factory=list)
    """Seconds from each kill to the end of the attempts that it lost."""

    def find_problems(self, tasks: int) -> list[str]:
        """Return the problems of a run: lost tasks, repeated ones, attempts without an end."""
        repeated = sorted(name for name, times in self.starts.items() if times > 1 and not name.startswith("again"))
        failed = sum(number for (_, status), number in self.statuses.items() if status == "failed")
        others = {key: number for key, number in self.statuses.items() if key[1] not in ("completed", "failed")}
        lost = self.outcomes.get("lost", 0) + self.outcomes.get("stopped", 0)
        checks = {
            f"{sum(self.statuses.values())} of {tasks} tasks have a row": sum(self.statuses.values()) != tasks,
            f"tasks without an ordinary end: {others}": bool(others),
            "tasks that may run again failed": ("again", "failed") in self.statuses,
            f"tools that must run once ran again: {repeated}": bool(repeated),
            "a task that may run again never ran": sum(name.startswith("again") for name in self.starts)
            != len(range(TOOLS.index("again"), tasks, len(TOOLS))),
            f"attempts without an end: {self.outcomes}": not self.outcomes.keys() <= {"finished", "lost", "stopped"},
            f"{failed} tasks failed, but {lost} attempts were lost": failed > lost,
        }
        return [text for text, is_wrong in checks.items() if is_wrong]


def read_figures(postgres: OwnPostgres, kills: list[Killed], runs: Path) -> Figures:
    """Read the rows of a run."""
    delays = []
    for name, ended in postgres.query("SELECT worker, ended FROM mcp_tasks_taskattempt WHERE outcome = 'lost'"):
        assert isinstance(ended, datetime)
        process = int(str(name).split(":")[-2])
        delays += [ended.timestamp() - at for at, ids in kills if process in ids]
    statuses = postgres.query("SELECT tool, status, count(*) FROM mcp_tasks_task GROUP BY 1, 2 ORDER BY 1, 2")
    outcomes = postgres.query("SELECT outcome, count(*) FROM mcp_tasks_taskattempt GROUP BY 1 ORDER BY 1")
    errors = postgres.query("SELECT error, count(*) FROM mcp_tasks_task WHERE error <> '' GROUP BY 1")
    return Figures(
        statuses={(str(tool), str(status)): int(str(number)) for tool, status, number in statuses},
        outcomes={str(outcome): int(str(number)) for outcome, number in outcomes},
        errors={str(error): int(str(number)) for error, number in errors},
        starts=Counter(runs.read_text().split("\n")[:-1]),
        kills=[at for at, _ in kills],
        delays=delays,
    )


def wait_until_busy(postgres: OwnPostgres, worker: GroupProcess) -> None:
    """Wait until a worker runs a task, or no task waits for one."""

    def is_busy() -> bool:
        rows = postgres.query("SELECT worker FROM mcp_tasks_task WHERE status = 'working'")
        processes = {str(worker).split(":")[-2] for (worker,) in rows if worker}
        return ("",) not in rows or not processes.isdisjoint(map(str, worker.list_pids()))

    wait_until(is_busy, "the worker runs no task")


def count(postgres: OwnPostgres, table: str, condition: str) -> int:
    ((number,),) = postgres.query(f"SELECT count(*) FROM {table} WHERE {condition}")
    assert isinstance(number, int)
    return number


def main() -> int:
    """Run, print the figures. Returns 1 for a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.killed_workers", description=__doc__)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--restarts", type=int, default=1, help="restarts of PostgreSQL and Redis")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        run = KillRun(tasks=options.tasks, kills=options.kills, restarts=options.restarts)
        figures = run.run(Path(directory))
    print(f"tasks: {figures.statuses}\nerrors: {figures.errors}\nattempts: {figures.outcomes}")
    print(f"kills: {len(figures.kills)} in {figures.kills[-1] - figures.kills[0]:.0f} s")
    print(
        f"lost attempts ended after {min(figures.delays, default=0):.1f} to {max(figures.delays, default=0):.1f} s"
        f" ({len(figures.delays)}); the run took {time.monotonic() - started:.0f} s"
    )
    problems = figures.find_problems(options.tasks)
    print("\n".join(problems or ["no task was lost, and none that must run once ran twice"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
