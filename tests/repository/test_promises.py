"""The page "What is promised": each promise names a page that exists and a test that runs."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.repository.pages import ROOT

PAGE = ROOT / "docs/run/promises.md"
HEADER = ("| Promise | Page | Test |", "|---|---|---|")
ROW = re.compile(r"\| (?P<promise>[^|]+\.) \| \[[^\]]+\]\((?P<page>[^)#]+)(?:#[\w-]+)?\) \| `(?P<test>[^`|]+)` \|")
MIN_PROMISES = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Promise(NamedTuple):
    """A row of the page: its sentence, the path of the page that states it, and the node id of its test."""

    promise: str
    page: str
    test: str


def read_promises(text: str) -> list[Promise]:
    """Return the rows of all tables of a page.

    Raises:
        ValueError: A row is malformed.
    """
    rows = [line for line in text.splitlines() if line.startswith("|") and line not in HEADER]
    matches = {row: ROW.fullmatch(row) for row in rows}
    if malformed := [row for row, match in matches.items() if match is None]:
        raise ValueError(f"rows without a sentence, a link and a test: {malformed}")
    return [Promise(**ROW.fullmatch(row).groupdict()) for row in rows]  # type: ignore[union-attr]  # checked above


@cache
def parse(path: Path) -> ast.Module:
    """Parse a module of tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


def find_problem(node_id: str, root: Path = ROOT) -> str | None:
    """Return the reason why a node id names no test that runs, if there is one."""
    file, *names = node_id.split("::")
    if not file.startswith("tests/") or not (root / file).is_file():
        return f"{file} does not exist"
    scope: ast.AST = parse(root / file)
    scopes = [scope]
    for name in names:
        found = [part for part in getattr(scope, "body", ()) if getattr(part, "name", None) == name]
        if not found:
            return f"{file} has no {'::'.join(names)}"
        scope = found[-1]
        scopes.append(scope)
    if not isinstance(scope, Function) or not scope.name.startswith("test_"):
        return f"{node_id} is not a test"
    return f"{node_id} never runs" if any(map(is_skipped, scopes)) else None


def is_skipped(scope: ast.AST) -> bool:
    """Return True if a module, class or function skips its tests in every environment."""
    marks = [
        statement.value
        for statement in getattr(scope, "body", ())
        if isinstance(statement, ast.Assign)
        and any(ast.unparse(target) == "pytestmark" for target in statement.targets)
    ]
    calls = [statement.value for statement in getattr(scope, "body", ()) if isinstance(statement, ast.Expr)]
    return any(
        ast.unparse(part) in {"pytest.mark.skip", "pytest.mark.xfail", "pytest.skip", "pytest.xfail"}
        for place in (*getattr(scope, "decorator_list", ()), *marks, *calls)
        for part in ast.walk(place)
    )


def find_repeated(promises: list[Promise]) -> Iterator[str]:
    """Yield the sentences, and the pairs of a page and a test, that more than one row has."""
    sentences = Counter(row.promise for row in promises)
    pairs = Counter(f"{row.page} {row.test}" for row in promises)
    yield from (text for text, count in (sentences + pairs).items() if count > 1)


def test_each_promise_has_a_test_that_runs() -> None:
    promises = read_promises(PAGE.read_text(encoding="utf-8"))
    assert [problem for row in promises if (problem := find_problem(row.test))] == []
    assert len(promises) >= MIN_PROMISES


def test_each_promise_links_to_a_page_that_exists() -> None:
    promises = read_promises(PAGE.read_text(encoding="utf-8"))
    assert {row.page for row in promises if not (PAGE.parent / row.page).is_file()} == set()


def test_no_promise_is_listed_twice() -> None:
    assert list(find_repeated(read_promises(PAGE.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("node_id", "problem"),
    [
        ("tests/test_a.py::test_runs", None),
        ("tests/test_a.py::TestGroup::test_runs", None),
        ("tests/test_a.py::test_runs_on_posix", None),
        ("tests/test_b.py::test_runs", "does not exist"),
        ("mcp_django/test_a.py::test_runs", "does not exist"),
        ("tests/test_a.py::test_is_renamed", "has no"),
        ("tests/test_a.py::TestGroup::test_is_renamed", "has no"),
        ("tests/test_a.py", "is not a test"),
        ("tests/test_a.py::helper", "is not a test"),
        ("tests/test_a.py::test_is_marked", "never runs"),
        ("tests/test_a.py::test_is_expected_to_fail", "never runs"),
        ("tests/test_a.py::test_skips", "never runs"),
        ("tests/test_a.py::TestSkipped::test_of_the_class", "never runs"),
    ],
)
def test_a_promise_without_a_test_is_noticed(node_id: str, problem: str | None, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(
        "import sys, pytest\n"
        "def helper(): ...\n"
        "def test_runs(): helper()\n"
        "@pytest.mark.skipif(sys.platform == 'win32', reason='x')\ndef test_runs_on_posix():\n"
        "    if not helper():\n        pytest.skip('x')\n"
        "@pytest.mark.skip\ndef test_is_marked(): ...\n"
        "@pytest.mark.xfail(reason='x')\ndef test_is_expected_to_fail(): ...\n"
        "def test_skips(): pytest.skip('x')\n"
        "class TestGroup:\n    async def test_runs(self): ...\n"
        "class TestSkipped:\n    pytestmark = [pytest.mark.skip('x')]\n    def test_of_the_class(self): ...\n",
        encoding="utf-8",
    )
    found = find_problem(node_id, tmp_path)
    assert (found is None) if problem is None else (problem in (found or ""))


def test_malformed_and_repeated_rows_are_noticed() -> None:
    row = "| It holds. | [Page](page.md#part) | `tests/test_a.py::test_runs` |"
    (promise,) = read_promises("\n".join(["# Title", *HEADER, row]))
    assert promise == Promise("It holds.", "page.md", "tests/test_a.py::test_runs")
    assert list(find_repeated([promise])) == []
    assert list(find_repeated([promise, promise._replace(test="b")])) == ["It holds."]
    assert list(find_repeated([promise, promise._replace(promise="B.")])) == ["page.md tests/test_a.py::test_runs"]
    for malformed in (row.replace("`", ""), row.replace("(page.md#part)", ""), row.replace("It holds.", "It holds")):
        with pytest.raises(ValueError, match="without a sentence, a link and a test"):
            read_promises(malformed)
