"""Random tasks under faults: none is lost, repeated or run at once, and no finished one fails.

The full form is a command: `python -m tests.load.random_tasks`.
"""

from pathlib import Path

import pytest

from tests.load.random_tasks.run import RandomRun

pytestmark = [pytest.mark.load, pytest.mark.postgres]
RUN = RandomRun(seed=3, tasks=40, seconds=60)


@pytest.mark.timeout(480)
def test_random_tasks_under_faults_keep_their_promises(tmp_path: Path) -> None:
    figures = RUN.run(tmp_path)
    assert figures.acknowledged == RUN.tasks
    assert not figures.verdict.problems, dict(figures.verdict.problems)
