"""Tasks of workers that are killed: each ends once, and a tool that must not run twice does not.

The full form is a command: `python -m tests.load.killed_workers`.
"""

from pathlib import Path

import pytest

from tests.load.killed_workers import KillRun

pytestmark = [pytest.mark.load, pytest.mark.postgres]
RUN = KillRun(tasks=18, kills=2)


@pytest.mark.timeout(300)
def test_killed_workers_lose_no_task_and_repeat_none_that_must_run_once(tmp_path: Path) -> None:
    assert RUN.run(tmp_path).find_problems(RUN.tasks) == []
