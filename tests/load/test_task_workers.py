"""Tasks of workers that are killed: each ends once, and a tool that must not run twice does not.

Two processes of `mcp_worker` and a Celery worker share the rows. One of them is killed at random each second, every
other time as soon as it runs a task. In the middle PostgreSQL and Redis, both of the test's own, crash and start again.
The environment sets a larger run:

MCP_LOAD_TASKS      number of tasks
MCP_LOAD_KILLS      number of kills
MCP_LOAD_RESTARTS   restarts of both services
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from tests.servers.databases import ROOT, environment, migrate
from tests.support.own_postgres import OwnPostgres, own_postgres
from tests.support.redis import own_redis
from tests.support.services import postgres_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.load, pytest.mark.postgres]
SITE = "tests.load.task_site.settings"
TASKS = int(os.environ.get("MCP_LOAD_TASKS", "60"))
KILLS = int(os.environ.get("MCP_LOAD_KILLS", "4"))
RESTARTS = int(os.environ.get("MCP_LOAD_RESTARTS", "1"))
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
    """Running workers, each in a process group of its own. A killed one is replaced by its like."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self._environ = environ
        self._log = log
        self.running: list[tuple[list[str], subprocess.Popen[bytes]]] = []

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.running.append((command, process))
        return process

    def replace(self, index: int) -> Killed:
        """Kill a worker with all its processes, and start another one."""
        command, process = self.running[index]
        ids = frozenset(list_group(process.pid))
        self.kill(index)
        killed = time.time()
        self.start(command)
        return killed, ids

    def kill(self, index: int) -> None:
        _, process = self.running.pop(index)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        while self.running:
            self.kill(0)


def list_group(leader: int) -> list[int]:
    """The processes of a process group."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(id) for id, group in rows if int(group) == leader]


@pytest.mark.timeout(1800)
def test_killed_workers_lose_no_task_and_repeat_none_that_must_run_once(tmp_path: Path) -> None:
    runs, log = tmp_path / "runs", tmp_path / "log"
    runs.touch()
    with ExitStack() as stack:
        redis, postgres = stack.enter_context(own_redis()), stack.enter_context(own_postgres())
        database = {**postgres_database(postgres.url), "OPTIONS": {}}
        migrate(database, SITE)
        environ = {
            **environment(database, SITE),
            "SITE_RUNS": str(runs),
            "SITE_RUN_SECONDS": str(max(1.0, KILLS * KILL_INTERVAL_SECONDS * PLACES / TASKS)),
            "SITE_BROKER": redis.url.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host="),
        }
        workers = WorkerSet(environ, log)
        stack.callback(workers.close)
        for command in (MCP_WORKER, MCP_WORKER, CELERY_WORKER):
            workers.start(command)

        create = [sys.executable, "-m", "tests.load.task_site.create", str(TASKS), *TOOLS]
        subprocess.run(create, cwd=ROOT, env=environ, check=True)
        wait_until(lambda: postgres.query("SELECT 1 FROM mcp_tasks_taskattempt LIMIT 1"), log.read_text)
        chance, kills = random.Random(7), []
        for number in range(KILLS):
            time.sleep(KILL_INTERVAL_SECONDS)
            index = chance.randrange(len(workers.running))
            if number % 2 == 0:
                wait_until_busy(postgres, workers.running[index][1].pid)
            kills.append(workers.replace(index))
            if (number + 1) % (KILLS // (RESTARTS + 1)) == 0 and number + 1 < KILLS:
                for service in (redis, postgres):
                    service.stop()
                    service.start()
        wait_until(
            lambda: count(postgres, "mcp_tasks_task", "status IN ('working', 'input_required')") == 0, log.read_text
        )
        report(postgres, kills)

        noted = Counter(runs.read_text().split("\n")[:-1])
        # The database has each task, each has one terminal status, and the file has each start.
        assert count(postgres, "mcp_tasks_task", "TRUE") == TASKS
        assert count(postgres, "mcp_tasks_task", "tool = 'again' AND status <> 'completed'") == 0
        assert count(postgres, "mcp_tasks_task", "status NOT IN ('completed', 'failed')") == 0
        assert [name for name, times in noted.items() if not name.startswith("again") and times > 1] == []
        assert sum(name.startswith("again") for name in noted) == len(range(TOOLS.index("again"), TASKS, len(TOOLS)))
        # Every attempt has an end: attempts of killed workers are lost, and the others have finished.
        assert count(postgres, "mcp_tasks_taskattempt", "outcome NOT IN ('finished', 'lost', 'stopped')") == 0
        # Only the tasks of killed workers failed.
        assert count(postgres, "mcp_tasks_task", "status = 'failed'") <= count(
            postgres, "mcp_tasks_taskattempt", "outcome IN ('lost', 'stopped')"
        )


def wait_until_busy(postgres: OwnPostgres, leader: int) -> None:
    """Wait until a worker runs a task, or no task waits for one."""

    def is_busy() -> bool:
        rows = postgres.query("SELECT worker FROM mcp_tasks_task WHERE status = 'working'")
        processes = {str(worker).split(":")[-2] for (worker,) in rows if worker}
        return ("",) not in rows or not processes.isdisjoint(map(str, list_group(leader)))

    wait_until(is_busy, "the worker runs no task")


def count(postgres: OwnPostgres, table: str, condition: str) -> int:
    ((number,),) = postgres.query(f"SELECT count(*) FROM {table} WHERE {condition}")
    assert isinstance(number, int)
    return number


def report(postgres: OwnPostgres, kills: list[Killed]) -> None:
    """Print the figures of the run; `pytest -s` shows them."""
    delays = []
    for name, ended in postgres.query("SELECT worker, ended FROM mcp_tasks_taskattempt WHERE outcome = 'lost'"):
        assert isinstance(ended, datetime)
        process = int(str(name).split(":")[-2])
        killed = [at for at, ids in kills if process in ids]
        delays += [ended.timestamp() - at for at in killed]
    statuses = postgres.query("SELECT tool, status, count(*) FROM mcp_tasks_task GROUP BY 1, 2 ORDER BY 1, 2")
    outcomes = postgres.query("SELECT outcome, count(*) FROM mcp_tasks_taskattempt GROUP BY 1 ORDER BY 1")
    errors = postgres.query("SELECT tool, error, count(*) FROM mcp_tasks_task WHERE error <> '' GROUP BY 1, 2")
    print(f"\nerrors: {errors}\ntasks: {statuses}\nattempts: {outcomes}")
    print(f"kills: {len(kills)} in {kills[-1][0] - kills[0][0]:.0f} s")
    print(f"lost attempts ended after {min(delays, default=0):.1f} to {max(delays, default=0):.1f} s ({len(delays)})")
