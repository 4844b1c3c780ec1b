"""The playground without the control room."""

import subprocess
import sys

PAGE_SECONDS = 120


def test_the_playground_runs_a_tool_without_the_control_room() -> None:
    command = [sys.executable, "-m", "tests.contrib.playground.site_without_records"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PAGE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "hello Ada" in done.stdout
