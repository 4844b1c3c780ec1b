"""Tasks of several processes on PostgreSQL: one process notices the changes of another."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.servers.databases import ROOT, Database, activity, count, environment, new_postgres
from tests.support.waiting import WAIT_SECONDS, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.postgres]
SITE = "tests.contrib.tasks.site.settings"


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with new_postgres(SITE) as database:
        yield database


def run(database: Database, scenario: str, *arguments: str) -> str:
    """Run a scenario in a process of its own; return its result."""
    command = [sys.executable, "-m", "tests.contrib.tasks.site.scenarios", scenario, *arguments]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment(database, SITE), capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert ran.returncode == 0, ran.stderr
    return str(json.loads(ran.stdout))


@contextmanager
def worker(database: Database) -> Iterator[None]:
    command = [sys.executable, "-m", "django", "mcp_worker", "--poll", "0.05", "--drain", "0"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(database, SITE), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


def is_sleeping(database: Database) -> bool:
    return any(state == "active" and "pg_sleep" in query for state, query in activity(database))


def test_a_cancellation_interrupts_the_sql_of_another_process(database: Database) -> None:  # TM-41
    """The next heartbeat would come in fifteen minutes, and the SQL would end in ten."""
    with worker(database):
        id = run(database, "start", "sleep_in_sql")
        wait_until(lambda: is_sleeping(database), "the tool does not start")
        run(database, "cancel", id)
        wait_until(lambda: not is_sleeping(database), "the tool does not stop")
        wait_until(lambda: count(database, "mcp_tasks_taskattempt", "outcome = 'cancelled'") == 1)
    assert count(database, "mcp_tasks_task", "status = 'cancelled'") == 1


def test_a_row_is_committed_before_its_request_ends(database: Database) -> None:  # TM-12
    assert run(database, "create_in_a_request") == "[1]"


def test_a_blocking_tool_keeps_its_lease_in_workers_without_a_loop(database: Database) -> None:
    with new_postgres(SITE) as empty:
        assert run(empty, "run_beyond_the_lease") == "completed []"
