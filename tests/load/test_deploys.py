"""Deploys: a worker with old code and one with new code share the rows, and only the new one knows a tool."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.load.processes import GroupProcess
from tests.load.task_site.journal import FIRST_VERSION, Entry, Event, read_journal
from tests.servers.databases import ROOT, Database, count, environment, new_postgres, update
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.load, pytest.mark.postgres]
SITE = "tests.load.task_site.settings"
WORKER = ["-m", "django", "mcp_worker", "--poll", "0.05", "--drain", "0"]
OLD, NEW = "old", "new"
WAITING = "status = 'working' AND worker = ''"
UNKNOWN_TOOL_WAIT_SECONDS = 3600.0
"""UNKNOWN_TOOL_WAIT of these tests. The row holds the start of that time, so no test waits for it."""


class Deploy:
    """A database with one task of a tool that only the new code has, and the workers that the test starts."""

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._journal = directory / "journal"
        self._journal.touch()
        self._log = directory / "log"
        self._workers: list[GroupProcess] = []
        command = [sys.executable, "-m", "tests.load.task_site.create", "1", "added"]
        subprocess.run(command, cwd=ROOT, env=self._build_environ(NEW), check=True)

    def _build_environ(self, name: str) -> dict[str, str]:
        mcp = {
            "AUTH": "none",
            "SERVERS": {"default": {"EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"]}},
            "TASKS": {
                "BACKEND": "mcp_django.contrib.tasks.worker.WorkerBackend",
                "UNKNOWN_TOOL_WAIT": UNKNOWN_TOOL_WAIT_SECONDS,
            },
        }
        return {
            **environment(self._database, SITE),
            "SITE_JOURNAL": str(self._journal),
            "SITE_PROCESS": name,
            "SITE_SETTINGS": json.dumps({"MCP": mcp}),
            **({"SITE_VERSION": FIRST_VERSION} if name == OLD else {}),
        }

    def start(self, name: str) -> None:
        """Start a worker with old or new code."""
        self._workers.append(GroupProcess(WORKER, self._build_environ(name), self._log))

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()

    def count(self, condition: str) -> int:
        """Count the tasks of a condition."""
        return count(self._database, "mcp_tasks_task", condition)

    def count_attempts(self) -> int:
        return count(self._database, "mcp_tasks_taskattempt", "true")

    def wait_until(self, condition: Callable[[], object]) -> None:
        wait_until(condition, lambda: self._log.read_text())

    def end_delay(self, *changes: str) -> None:
        """Let a worker take the waiting task now, and change columns of its row."""
        assignments = ", ".join(("run_after = now()", *changes))
        update(self._database, f"UPDATE mcp_tasks_task SET {assignments} WHERE {WAITING}")

    def list_starts(self) -> list[str]:
        """Return the names of the workers that have started the tool, in their order."""
        entries: list[Entry] = read_journal(self._journal)
        return [entry.process for entry in entries if entry.event is Event.START]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """The old worker has returned the task, and continues."""
    with new_postgres(SITE) as database:
        deploy = Deploy(database, tmp_path)
        try:
            deploy.start(OLD)
            deploy.wait_until(lambda: deploy.count(f"{WAITING} AND unknown_since IS NOT NULL AND run_after > now()"))
            yield deploy
        finally:
            deploy.close()


def test_a_new_worker_runs_a_task_that_an_old_one_has_returned(deploy: Deploy) -> None:
    assert deploy.count("attempts = 0 AND losses = 0") == 1
    assert deploy.count_attempts() == 0
    deploy.start(NEW)

    def is_completed() -> bool:
        deploy.end_delay()
        return deploy.count("status = 'completed'") == 1

    deploy.wait_until(is_completed)
    assert deploy.list_starts() == [NEW]
    assert deploy.count("attempts = 1 AND losses = 0 AND NOT is_error") == 1


def test_a_task_that_only_old_workers_take_fails_after_a_time(deploy: Deploy) -> None:
    deploy.end_delay(f"unknown_since = unknown_since - interval '{UNKNOWN_TOOL_WAIT_SECONDS} seconds'")
    deploy.wait_until(lambda: deploy.count("status = 'failed'"))
    assert deploy.count("error LIKE '%Unknown tool: added%'") == 1
