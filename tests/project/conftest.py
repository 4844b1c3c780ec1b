"""Runs the demo's commands in their own process, with everything they write below a temporary directory."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The tests in there need the demo's settings; test_commands.py runs them in a process that has them.
collect_ignore = [] if os.environ.get("DJANGO_SETTINGS_MODULE") == "project.settings" else ["inside"]

Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(demo_dir: Path) -> dict[str, str]:
    """Variables for a process of the demo that leaves the checkout, and databases around it, alone."""
    inherited = {k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "REDIS_URL", "SECRET_KEY"}}
    return {**inherited, "DJANGO_SETTINGS_MODULE": "project.settings", "DEMO_DIR": str(demo_dir)}


@pytest.fixture(scope="session")
def demo_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the demo's database and secrets."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="session")
def python(demo_dir: Path) -> Run:
    """Run Python from the checkout's root under the demo's settings; a failure shows what it printed."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment(demo_dir),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run
