"""Loading a few countries, and everything that can be seen from inside the demo with their airports."""

from pathlib import Path

import pytest

from tests.project.conftest import Run

COUNTRIES = ["CH", "FJ", "NZ"]


@pytest.fixture(scope="module")
def loaded(python: Run) -> str:
    """Load the countries; the output of the command."""
    python("manage.py", "migrate", "--verbosity", "0")
    return python("manage.py", "loadairports", *(f"--country={code}" for code in COUNTRIES)).stdout


def test_the_loader_says_what_it_loaded_and_draws_no_bar_into_a_pipe(python: Run, loaded: str) -> None:
    again = python("manage.py", "loadairports", *(f"--country={code}" for code in COUNTRIES))
    assert "airports in 3 countries" in again.stdout
    assert again.stdout == loaded
    assert again.stderr == ""


@pytest.mark.usefixtures("loaded")
def test_what_is_inside_the_demo_works(python: Run) -> None:
    """Runs `inside/` under the demo's settings, with the rows loaded above."""
    python("-m", "pytest", "tests/project/inside", "--confcutdir=tests/project", "-p", "no:cacheprovider", "-q")


def test_what_the_demo_writes_ignores_itself(loaded: str, demo_dir: Path) -> None:
    assert loaded
    assert (demo_dir / ".gitignore").read_text() == "*\n"
    assert (demo_dir / "secret_key").stat().st_mode & 0o077 == 0
