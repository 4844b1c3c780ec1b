"""The names of failed tests, for the last lines of a long run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.failed_tests import FailedTests


def make_report(name: str, failed: bool) -> Any:
    return SimpleNamespace(nodeid=name, failed=failed)


def test_only_failures_are_written_each_at_once(tmp_path: Path) -> None:
    path = tmp_path / "failed"
    failed: Any = FailedTests(path)
    failed.pytest_runtest_logreport(make_report("tests/test_a.py::test_passes", failed=False))
    failed.pytest_runtest_logreport(make_report("tests/test_a.py::test_fails", failed=True))
    assert path.read_text() == "tests/test_a.py::test_fails\n"
    failed.pytest_collectreport(make_report("tests/test_b.py", failed=True))
    assert path.read_text().splitlines()[1:] == ["tests/test_b.py"]
