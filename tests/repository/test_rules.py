"""Rules for the tests themselves."""

import ast
from collections.abc import Iterator

import pytest

from tests.repository.pages import ROOT, name_of

# Servers and processes that tests start need real time, and so do these folders.
MAY_SLEEP = (
    "tests/clients/",
    "tests/composed/",
    "tests/conformance/",
    "tests/load/",
    "tests/management/stdio_project.py",
    "tests/runtime/serving.py",
    "tests/servers/",
    "tests/support/",
    "tests/workers/",
)


def sleeps(source: str) -> Iterator[int]:
    """Yield the lines on which a program sleeps for longer than one turn of the event loop."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func).split(".")[-1] != "sleep":
            continue
        if [ast.unparse(argument) for argument in node.args] != ["0"]:
            yield node.lineno


def test_tests_do_not_sleep() -> None:
    found = [
        f"{name}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not (name := name_of(path)).startswith(MAY_SLEEP)
        if "sleep(" in (source := path.read_text(encoding="utf-8"))
        for line in sleeps(source)
    ]
    assert not found, "wait for an event, or advance the `clock`:\n" + "\n".join(found)


def test_sleeping_is_noticed(subtests: pytest.Subtests) -> None:
    for source, lines in (
        ("await asyncio.sleep(0)", []),
        ("await asyncio.sleep(0.01)", [1]),
        ("\nsleep(seconds)", [2]),
        ("time.sleep(1); time.sleep(0)", [1]),
        ("sleep(seconds=0)", [1]),
        ("cursor.execute('SELECT pg_sleep(1)')", []),
    ):
        with subtests.test(source=source):
            assert list(sleeps(source)) == lines


def close_readings(source: str) -> Iterator[int]:
    """Yield the lines on which a program expects two readings of the time of day to be close to each other."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare) or not any(name in ast.unparse(node.left) for name in ("time()", ".now(")):
            continue
        is_difference = any(isinstance(part, ast.Sub) for part in ast.walk(node.left))
        for operator, limit in zip(node.ops, node.comparators, strict=True):
            is_close = isinstance(limit, ast.Constant) and isinstance(limit.value, int | float) and limit.value < 60
            if is_difference and is_close and isinstance(operator, ast.Lt | ast.LtE):
                yield node.lineno


def test_tests_do_not_expect_a_fast_machine() -> None:
    found = [
        f"{name}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not (name := name_of(path)).startswith(MAY_SLEEP)
        for line in close_readings(path.read_text(encoding="utf-8"))
    ]
    assert not found, "stop the time of day, or allow a margin of minutes:\n" + "\n".join(found)


def test_close_readings_are_noticed(subtests: pytest.Subtests) -> None:
    for source, lines in (
        ("assert abs(shared.time() - time.time()) < 1", [1]),
        ("assert (datetime.now(UTC) - at).total_seconds() <= 2.5", [1]),
        ("assert abs(found - time.time()) < 60", []),
        ("assert time.time() < end", []),
        ("assert left - right < 1", []),
    ):
        with subtests.test(source=source):
            assert list(close_readings(source)) == lines
