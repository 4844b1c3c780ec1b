"""The demo seen from inside, under its own settings and with a few countries' airports."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.conftest import ROOT, environment

TIMEOUT_SECONDS = 580


@pytest.mark.timeout(600)
def test_tests_inside_the_demo_pass(tmp_path: Path) -> None:
    """Run the tests of `inside/`, and print their output if one fails."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "tests/project/inside",
            "--confcutdir=tests/project",
            "-p",
            "no:cacheprovider",
        ],
        cwd=ROOT,
        env=environment(tmp_path / "var"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
