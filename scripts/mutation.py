"""Mutation testing of a sample: which small faults in the package do the tests notice?

    python scripts/mutation.py plant DIRECTORY [--faults FILE]   put faults into the package of a copy of this checkout
    python -m pytest -p scripts.mutation ...                     in the copy: record which test executes which fault
    python scripts/mutation.py plan DIRECTORY [--parts N]        choose the tests of each fault: plan0.json ...
    MUTATION_TRY=plan0.json python -m pytest -p scripts.mutation -p no:cacheprovider --capture=sys ...
                                                                 in the copy: try each fault; plan0.json.results

`plant` chooses the same faults for the same code (a seeded sample, as many from each of `FOLDERS`) and writes each into
the code as a switch on its own line, so that line numbers and branches stay as they were. With `--faults` it plants the
faults of an earlier `faults.json`, found again by function and text. The last step collects the tests once and forks a
process for each fault, which switches it on, runs the planned tests and stops at the first that fails. A number in the
plan that is no fault, such as 100000, is a control: its tests have to survive.

The copy has to be one that is thrown away. A sample keeps the time bounded: mutmut and cosmic-ray run one process for
each mutant of the whole package, which takes days here.
"""

import argparse
import ast
import hashlib
import json
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDERS = ("server", "auth", "orm", "transports", "runtime", "client", "oauth")
FAULTS_PER_FOLDER = 34
MAX_TESTS = 250
"""Tests that are run for one fault: the most specific first, those that execute the fewest faults."""
FAULT_TIMEOUT_SECONDS = 300

SWITCH = '''"""Switches for planted faults: one is on at most."""

import builtins
import os

state = {"on": int(os.environ.get("MUTATION", "-1")), "hits": set()}


def _is_on(number: int) -> bool:
    state["hits"].add(number)
    return state["on"] == number


builtins.__dict__["_fault"] = _is_on
'''

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class Fault(NamedTuple):
    """One fault: an expression, and another that takes its place."""

    path: str
    """Inside the package."""
    function: str
    """The qualified name of the function."""
    before: str
    after: str
    ordinal: int
    """The number of this pair of texts in this function."""
    start: tuple[int, int]
    end: tuple[int, int]


def mutations(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that may take the place of a node."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators) if type(op) in COMPARISONS:
            yield ast.Compare(left, [COMPARISONS[type(op)]()], comparators)
        case ast.BoolOp(op=ast.And(), values=values):
            yield ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(op=ast.Or(), values=values):
            yield ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield ast.BinOp(left, ast.Sub(), right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            yield ast.BinOp(left, ast.Add(), right)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)


class _Faults(ast.NodeVisitor):
    """Collect the faults that can be planted in the functions of a module."""

    def __init__(self, path: str) -> None:
        self.found: list[Fault] = []
        self._path = path
        self._names: list[str] = []
        self._in_function = False
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def visit(self, node: ast.AST) -> None:
        if self._in_function:
            for fault in _statement_faults(node) if isinstance(node, ast.Expr) else ():
                self._add(*fault)
            for other in mutations(node) if isinstance(node, ast.expr) else ():
                self._add(node, ast.unparse(ast.fix_missing_locations(other)))
        super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_body(node, in_function=True)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_body(node, in_function=False)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def skip(self, node: ast.AST) -> None:
        """Leave out a node whose parts are not expressions that a fault may replace."""

    visit_JoinedStr = visit_Assert = visit_Import = visit_ImportFrom = visit_match_case = visit_Subscript = skip

    def _visit_body(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, *, in_function: bool) -> None:
        before, self._in_function = self._in_function, in_function
        self._names.append(node.name)
        for child in node.body:
            self.visit(child)
        self._names.pop()
        self._in_function = before

    def _add(self, node: ast.expr, after: str) -> None:
        key = (".".join(self._names), ast.unparse(node), after)
        self._counts[key] += 1
        end = (node.end_lineno or 0, node.end_col_offset or 0)
        self.found.append(Fault(self._path, *key, self._counts[key], (node.lineno, node.col_offset), end))


def _statement_faults(statement: ast.Expr) -> Iterator[tuple[ast.expr, str]]:
    """Yield the fault that leaves out a call or an await whose value has no reader."""
    match statement.value:
        case ast.Call(func=func) as call if not ast.unparse(func).startswith("logger."):
            yield call, "None"
        case ast.Await() as waiting:
            yield waiting, "None"


def faults_of(path: str, source: str) -> list[Fault]:
    """List all faults that can be planted in a module."""
    faults = _Faults(path)
    faults.visit(ast.parse(source))
    return faults.found


def sample(package: Path) -> list[Fault]:
    """Choose faults, as many from each folder."""
    chosen: list[Fault] = []
    for folder in FOLDERS:
        every: list[Fault] = []
        for path in sorted((package / folder).rglob("*.py")):
            if "migrations" not in path.parts:
                every += faults_of(path.relative_to(package).as_posix(), path.read_text(encoding="utf-8"))
        seed = int(hashlib.sha256(folder.encode()).hexdigest(), 16)
        random.Random(seed).shuffle(every)  # noqa: S311
        picked: list[Fault] = []
        for fault in every:
            if len(picked) == FAULTS_PER_FOLDER:
                break
            if not any(_overlap(fault, other) for other in picked):
                picked.append(fault)
        chosen += picked
    return chosen


def found_again(package: Path, wanted: list[list[Any]]) -> list[Fault | None]:
    """Find faults of an earlier version in this one."""
    found: list[Fault | None] = []
    for path, function, before, after, ordinal, *_ in wanted:
        file = package / path
        every = faults_of(path, file.read_text(encoding="utf-8")) if file.exists() else []
        same = [f for f in every if (f.function, f.before, f.after, f.ordinal) == (function, before, after, ordinal)]
        found.append(same[0] if same else None)
    return found


def _overlap(one: Fault, other: Fault) -> bool:
    return one.path == other.path and one.start <= other.end and other.start <= one.end


def plant(directory: Path, faults: list[Fault | None]) -> None:
    """Write faults into the package of a copy, each behind its switch."""
    package = directory / "mcp_django"
    by_path: dict[str, list[tuple[int, Fault]]] = defaultdict(list)
    for number, fault in enumerate(faults):
        if fault is not None:
            by_path[fault.path].append((number, fault))
    for path, planted in by_path.items():
        lines = (package / path).read_bytes().split(b"\n")
        for number, fault in sorted(planted, key=lambda pair: pair[1].start, reverse=True):
            (first, column), (last, end) = fault.start, fault.end
            lines[last - 1] = lines[last - 1][:end] + b"))" + lines[last - 1][end:]
            opening = f"(({fault.after}) if _fault({number}) else (".encode()
            lines[first - 1] = lines[first - 1][:column] + opening + lines[first - 1][column:]
        text = b"\n".join(lines)
        compile(text, path, "exec")
        (package / path).write_bytes(text)
    (package / "_faults.py").write_text(SWITCH)
    init = package / "__init__.py"
    text = init.read_text(encoding="utf-8")
    end = ast.parse(text).body[0].end_lineno or 1
    lines_of_text = text.split("\n")
    lines_of_text[end - 1] += "; from . import _faults as _faults"
    init.write_text("\n".join(lines_of_text), encoding="utf-8")
    (directory / "faults.json").write_text(json.dumps(faults, indent=0))
    (directory / "hits").mkdir(exist_ok=True)


# As a plugin of pytest


def _state() -> dict[str, Any]:
    from mcp_django import _faults  # type: ignore[attr-defined]

    state: dict[str, Any] = _faults.state
    return state


def pytest_runtest_protocol(item: Any, nextitem: Any) -> None:
    """Begin a test: it has executed nothing."""
    if "MUTATION_TRY" not in os.environ:
        _state()["hits"].clear()
        _state()["test"] = item.nodeid


def pytest_runtest_logfinish(nodeid: str, location: Any) -> None:
    """Record the faults that a test has executed."""
    if "MUTATION_TRY" in os.environ or _state().get("test") != nodeid:
        return
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with Path("hits", f"{worker}.jsonl").open("a") as file:
        file.write(json.dumps([nodeid, sorted(_state()["hits"])]) + "\n")


def pytest_runtestloop(session: Any) -> bool | None:
    """Instead of running all tests, run those of each fault in a process of its own."""
    if "MUTATION_TRY" not in os.environ:
        return None
    plan = json.loads(Path(os.environ["MUTATION_TRY"]).read_text())
    by_id = {item.nodeid: item for item in session.items}
    results: dict[str, list[Any]] = {}
    for number, names in plan.items():
        items = [by_id[name] for name in names if name in by_id]
        results[number] = [*_try(int(number), items), len(items)]
        print(number, results[number], flush=True)
        Path(os.environ["MUTATION_TRY"] + ".results").write_text(json.dumps(results))
    return True


def _try(number: int, items: list[Any]) -> tuple[str, str]:
    """Run tests with a fault on: how it ended, and the test that failed."""
    reading, writing = os.pipe()
    silence = os.open(os.devnull, os.O_WRONLY)
    if not (pid := os.fork()):
        os.setpgid(0, 0)
        os.close(reading)
        status = 0
        try:
            from django.db import connections

            database = connections["default"].settings_dict
            if connections["default"].vendor == "sqlite":
                database["NAME"] = str(Path(database["NAME"]).with_name(f"fault-{number}.sqlite3"))
            for descriptor in (1, 2):
                os.dup2(silence, descriptor)
            _state()["on"] = number
            for item, following in zip(items, [*items[1:], None], strict=True):
                failed: list[str] = []
                reports = _run(item, following)
                failed = [report.nodeid for report in reports if report.failed]
                if failed:
                    os.write(writing, failed[0].encode())
                    status = 1
                    break
        except BaseException as error:
            os.write(writing, repr(error).encode())
            status = 2
        os._exit(status)
    os.close(writing)
    os.close(silence)
    until = time.monotonic() + FAULT_TIMEOUT_SECONDS
    while time.monotonic() < until:
        done, code = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.02)
    else:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return ("timeout", "")
    said = os.read(reading, 4000).decode()
    os.close(reading)
    try:
        os.killpg(pid, signal.SIGKILL)  # the processes that its tests have left running
    except OSError:
        pass
    return ("survived" if code == 0 else "killed", said)


def _run(item: Any, following: Any) -> list[Any]:
    from _pytest.runner import runtestprotocol

    reports = runtestprotocol(item, log=False, nextitem=following)
    for report in reports:
        item.config.hook.pytest_report_teststatus(report=report, config=item.config)  # fails tests with failed subtests
    return reports


def plan(directory: Path) -> dict[str, list[str]]:
    """Choose the tests of each fault."""
    tests: dict[int, list[str]] = defaultdict(list)
    weight: dict[str, int] = {}
    for file in sorted((directory / "hits").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            nodeid, hits = json.loads(line)
            weight[nodeid] = len(hits)
            for number in hits:
                tests[number].append(nodeid)
    return {
        str(number): sorted(names, key=lambda n: (weight[n], hashlib.sha256(n.encode()).digest()))[:MAX_TESTS]
        for number, names in sorted(tests.items())
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["plant", "plan"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--faults", type=Path)
    parser.add_argument("--parts", type=int, default=2)
    arguments = parser.parse_args()
    package = arguments.directory / "mcp_django"
    if arguments.command == "plant":
        wanted = json.loads(arguments.faults.read_text()) if arguments.faults else None
        faults = sample(package) if wanted is None else found_again(package, wanted)
        plant(arguments.directory, list(faults))
        print(len(faults), "faults,", sum(fault is None for fault in faults), "not found again")
        return
    whole = plan(arguments.directory)
    for part in range(arguments.parts):
        chosen = dict(list(whole.items())[part :: arguments.parts])
        (arguments.directory / f"plan{part}.json").write_text(json.dumps(chosen))
    print(len(whole), "faults are executed by tests")


if __name__ == "__main__":
    main()
