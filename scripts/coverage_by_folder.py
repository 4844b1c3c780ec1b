"""Line and branch coverage of the package by folder, measured by the interpreter's own monitoring (Python 3.12+).

    python -m pytest -p scripts.coverage_by_folder ...      record into build/coverage/*.json, one file for each process
    python scripts/coverage_by_folder.py [BEFORE] [AFTER]   print a table of one or two such directories

coverage.py traces to measure branches before Python 3.14, which doubles the time of this suite. `sys.monitoring` costs
a few percent: a line is reported once, and a branch until both of its ways were taken. The figures of two runs compare
with each other, not with those of coverage.py, which counts branches by lines instead of by instructions.
"""

import atexit
import dis
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = str(ROOT / "mcp_django") + os.sep
RESULTS = ROOT / "build" / "coverage"
BRANCHES = ("POP_JUMP_IF", "FOR_ITER")

_lines: set[tuple[str, int]] = set()
_ways: dict[tuple[CodeType, int], set[int]] = defaultdict(set)


def start() -> None:
    """Record all that this process executes of the package, until it ends."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    tool, events = monitoring.COVERAGE_ID, monitoring.events
    monitoring.use_tool_id(tool, "coverage_by_folder")

    def on_line(code: CodeType, line: int) -> object:
        if code.co_filename.startswith(PACKAGE):
            _lines.add((code.co_filename, line))
        return monitoring.DISABLE

    def on_branch(code: CodeType, offset: int, destination: int) -> object:
        if not code.co_filename.startswith(PACKAGE):
            return monitoring.DISABLE
        taken = _ways[code, offset]
        taken.add(destination)
        return monitoring.DISABLE if len(taken) == 2 else None

    monitoring.register_callback(tool, events.LINE, on_line)
    monitoring.register_callback(tool, events.BRANCH, on_branch)
    monitoring.set_events(tool, events.LINE | events.BRANCH)
    atexit.register(save)


def save() -> None:
    """Record the lines that were executed so far."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    lines = sorted((file.removeprefix(PACKAGE), line) for file, line in _lines)
    ways = sorted(
        (code.co_filename.removeprefix(PACKAGE), code.co_qualname, code.co_firstlineno, offset, way)
        for (code, offset), taken in list(_ways.items())
        for way in list(taken)
    )
    (RESULTS / f"{os.getpid()}.json").write_text(json.dumps({"lines": lines, "ways": ways}))


# As a plugin of pytest

_finished = 0


def pytest_runtest_logfinish() -> None:
    """Save now and then, in case that the process is killed."""
    global _finished
    _finished += 1
    if _finished % 500 == 0:
        save()


def pytest_sessionfinish() -> None:
    """Save at the end; an interpreter that is torn down calls no `atexit` in a process of xdist."""
    save()


def table(*directories: Path) -> Iterator[str]:
    """Yield the lines of a table: a row for each folder, with the shares of lines and branches in percent."""
    measured = [_measured(directory) for directory in directories]
    wanted = _wanted()
    yield f"| {'folder':<14} |" + " lines | branches |" * len(measured)
    yield "|---|" + "--:|--:|" * len(measured)
    for folder, (lines, ways) in sorted(wanted.items()):
        cells = [
            f" {100 * len(seen[0][folder] & lines) / max(1, len(lines)):5.1f} |"
            f" {100 * min(len(seen[1][folder]), ways) / max(1, ways):5.1f} |"
            for seen in measured
        ]
        yield f"| {folder:<14} |" + "".join(cells)


def _measured(directory: Path) -> tuple[dict[str, set[Any]], dict[str, set[Any]]]:
    lines: dict[str, set[Any]] = defaultdict(set)
    ways: dict[str, set[Any]] = defaultdict(set)
    for path in directory.glob("*.json"):
        found = json.loads(path.read_text())
        for file, line in found["lines"]:
            lines[_folder(file)].add((file, line))
        for way in found["ways"]:
            ways[_folder(way[0])].add(tuple(way))
    return lines, ways


def _wanted() -> dict[str, tuple[set[tuple[str, int]], int]]:
    """Return all lines and the number of all ways of branches, by folder."""
    lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
    ways: dict[str, int] = defaultdict(int)
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        file = str(path).removeprefix(PACKAGE)
        if "migrations" in path.parts or file == "_faults.py":
            continue
        for code in _codes(compile(path.read_text(encoding="utf-8"), str(path), "exec")):
            lines[_folder(file)].update((file, line) for _, _, line in code.co_lines() if line)
            ways[_folder(file)] += 2 * sum(i.opname.startswith(BRANCHES) for i in dis.get_instructions(code))
    return {folder: (lines[folder], ways[folder]) for folder in lines}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _folder(file: str) -> str:
    return Path(file).parts[0] if os.sep in file else "(top)"


if __name__ == "__main__":
    for row in table(*(map(Path, sys.argv[1:]) if sys.argv[1:] else (RESULTS,))):
        print(row)
else:
    start()
