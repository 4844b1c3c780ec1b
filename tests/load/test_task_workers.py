"""Tasks of workers that are killed: each ends once, and a tool that must not run twice does not.

Two processes of `mcp_worker` and a Celery worker share the rows. One of them is killed at random again and again.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.servers.databases import ROOT, Database, count, environment, new_postgres
from tests.support.redis import own_redis
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.load, pytest.mark.postgres]
SITE = "tests.load.task_site.settings"
TASKS = 200
KILLS = 8
KILL_INTERVAL_SECONDS = 2
MCP_WORKER = ["-m", "django", "mcp_worker", "--concurrency", "4", "--poll", "0.2"]
CELERY_WORKER = ["-m", "celery", "-A", "tests.load.task_site.celery_app", "worker", "-P", "prefork", "-c", "3"]


class WorkerSet:
    """Running workers, each in a process group of its own. A killed one is replaced by its like."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self._environ = environ
        self._log = log
        self.running: list[tuple[list[str], subprocess.Popen[bytes]]] = []

    def start(self, command: list[str]) -> None:
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

    def kill(self, index: int) -> list[str]:
        """Kill a worker with all its processes; return its command."""
        command, process = self.running.pop(index)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return command

    def close(self) -> None:
        while self.running:
            self.kill(0)


@pytest.fixture
def database() -> Iterator[Database]:
    with new_postgres(SITE) as database:
        yield database


@pytest.mark.timeout(600)
def test_killed_workers_lose_no_task_and_repeat_none_that_must_run_once(database: Database, tmp_path: Path) -> None:
    runs, log = tmp_path / "runs", tmp_path / "log"
    runs.touch()
    with ExitStack() as stack:
        redis = stack.enter_context(own_redis())
        broker = redis.url.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host=")
        environ = {**environment(database, SITE), "SITE_RUNS": str(runs), "SITE_BROKER": broker}
        workers = WorkerSet(environ, log)
        stack.callback(workers.close)
        for command in (MCP_WORKER, MCP_WORKER, CELERY_WORKER):
            workers.start(command)

        subprocess.run(
            [sys.executable, "-m", "tests.load.task_site.create", str(TASKS)], cwd=ROOT, env=environ, check=True
        )
        chance = random.Random(7)
        for number in range(KILLS):
            time.sleep(KILL_INTERVAL_SECONDS)
            workers.start(workers.kill(chance.randrange(len(workers.running))))
            if number == KILLS // 2:
                redis.stop()
                redis.start()
                _drop_connections(database)
        wait_until(
            lambda: count(database, "mcp_tasks_task", "status IN ('working', 'input_required')") == 0,
            lambda: f"unfinished tasks remain:\n{log.read_text()[-4000:]}",
        )

    noted = Counter(runs.read_text().split("\n")[:-1])
    assert count(database, "mcp_tasks_task", "TRUE") == TASKS
    assert count(database, "mcp_tasks_task", "tool = 'again' AND status <> 'completed'") == 0
    assert count(database, "mcp_tasks_task", "tool = 'once' AND status NOT IN ('completed', 'failed')") == 0
    assert [name for name, times in noted.items() if name.startswith("once") and times > 1] == []
    assert sum(name.startswith("again") for name in noted) == TASKS // 2
    # Every attempt has an end: attempts of killed workers are lost, and the others have finished.
    assert count(database, "mcp_tasks_taskattempt", "outcome NOT IN ('finished', 'lost', 'stopped')") == 0


def _drop_connections(database: Database) -> None:
    """End all connections to the database, as its restart does."""
    where = {name.lower(): database[name.upper()] for name in ("host", "user", "password") if database[name.upper()]}
    with psycopg.connect(**where, port=database["PORT"] or None, dbname="postgres", autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database["NAME"]]
        )
