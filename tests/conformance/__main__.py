"""Run the official conformance suite against the fixtures server, its scenarios for authorization servers against the
protected site, and those for clients with `mcp_django.client`, in every revision it knows.

The suite exits with 1 on failures only and hides warnings; here a warning counts as a failure. Expected failures are
listed in `expected_failures.yml` and `expected_client_failures.yml`, with a reason; an entry that passes fails the run:
the files only shrink.
"""

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance import authorization, client_runs, task_sites
from tests.conformance.npm import installed_tool
from tests.support.ports import take_port
from tests.support.waiting import wait_until

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
EXTENSION_VERSION = VERSIONS[-1]
EXTENSION_SCENARIOS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
    "sep-2640-skills-directory",
)
"""Scenarios of extensions, which no suite of the tool includes.

`tasks-status-notifications` is left out: the tool skips it.
"""
EXPECTED = Path(__file__).with_name("expected_failures.yml")
CLIENT_EXPECTED = Path(__file__).with_name("expected_client_failures.yml")
SIDES = ("server", "client")
"""Sides that a run tests by default. The side `tasks` needs PostgreSQL."""
DOORS = {"asgi": "/mcp", "view": "/view/mcp"}
BAD = ("FAILURE", "WARNING")


class Problem(NamedTuple):
    """One check that did not pass."""

    check: str
    status: str
    message: str


Leg = dict[str, list[Problem]]
"""Scenario to its problems, under one revision; an empty list is a pass."""


def main() -> int:
    options = _options()
    suite = installed_tool("conformance", SUITE, "conformance")
    sides = ["server"] if options.url else options.side
    with tempfile.TemporaryDirectory() as directory:
        results = Path(directory)
        tried = {"server": _server_legs, "client": _client_legs, "tasks": _task_legs}
        judged = [_judged(side, tried[side](suite, options, results / side), options) for side in sides]
    return 0 if all(judged) else 1


def _judged(side: str, legs: dict[str, Leg], options: argparse.Namespace) -> bool:
    """Print the outcome of one side. Return True if all failures were expected, and all expected ones occurred."""
    file = EXPECTED if side == "server" else CLIENT_EXPECTED
    expected = {} if side == "tasks" else expected_failures(file.read_text(), file.name)
    print_line(f"{side.capitalize()}\n{table(legs, expected)}")
    whole = set(options.version) == set(VERSIONS)
    complaints = [*unexpected(legs, expected), *stale(legs, expected, complete=whole, file=file.name)]
    for complaint in complaints:
        print_line(complaint)
    outcomes = [bool(problems) for leg in legs.values() for problems in leg.values()]
    allowed = sum(bool(problems) for leg in legs.values() for name, problems in leg.items() if name in expected)
    note = f" ({allowed} more expected to fail)" if allowed else ""
    print_line(f"{outcomes.count(False)} passed, {sum(outcomes) - allowed} failed{note}")
    return not complaints


def _server_legs(suite: list[str], options: argparse.Namespace, results: Path) -> dict[str, Leg]:
    legs: dict[str, Leg] = {}
    with _server(options) as url:
        for version in options.version:
            legs[version] = _run(suite, url, version, results / version)
        if EXTENSION_VERSION in options.version:
            legs[EXTENSION_VERSION] |= _run_extensions(suite, url, results / "extensions")
    if not options.url:
        with authorization.protected_site() as site:
            for version in options.version:
                legs[version] |= _authorize(suite, site, version, results / f"{version}-authorization")
    return legs


def _task_legs(suite: list[str], options: argparse.Namespace, results: Path) -> dict[str, Leg]:
    """The scenarios of tasks on two workers with PostgreSQL, one leg for each backend."""
    legs: dict[str, Leg] = {}
    for name in task_sites.BACKENDS:
        with task_sites.task_site(name) as url:
            legs[name] = _run_extensions(suite, url, results / name.replace(" ", "-"))
    return legs


def _client_legs(suite: list[str], options: argparse.Namespace, results: Path) -> dict[str, Leg]:
    legs: dict[str, Leg] = {}
    for leg, scenario, checks, complaint in client_runs.outcomes(suite, options.version, results):
        problems = _problems(checks)
        if complaint and not problems:
            problems = [Problem("(client)", "FAILURE", f"the client broke down:\n{complaint}")]
        legs.setdefault(leg, {})[scenario] = problems
    return legs


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--port", type=int, default=18765, help="port for the fixtures server")
    parser.add_argument("--door", choices=DOORS, default="asgi", help="the door of the fixtures server to test")
    parser.add_argument("--url", help="test a server that runs already, and no client")
    parser.add_argument(
        "--side",
        nargs="+",
        choices=(*SIDES, "tasks"),
        default=SIDES,
        help="test servers, clients, or tasks on several workers",
    )
    parser.add_argument("--version", nargs="+", choices=VERSIONS, default=VERSIONS, help="revisions to test under")
    return parser.parse_args()


def expected_failures(text: str, file: str = EXPECTED.name) -> dict[str, str]:
    """Scenario to reason. Raises SystemExit for an entry without one."""
    entries = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or re.fullmatch(r"(server|client):(\s*\[\])?\s*", line):
            continue
        entry = re.fullmatch(r"\s+- (?P<name>\S+)\s+# (?P<reason>.+)", line)
        if entry is None:
            raise SystemExit(f"{file}, line {number}: write `  - scenario  # reason`")
        entries[entry["name"]] = entry["reason"]
    return entries


def unexpected(legs: dict[str, Leg], expected: dict[str, str]) -> Iterator[str]:
    """A line for each check that failed or warned and was not expected to."""
    for version, leg in legs.items():
        for name, problems in leg.items():
            if name not in expected:
                yield from (f"{version} {name}: {p.status} {p.check}: {p.message}" for p in problems)


def stale(
    legs: dict[str, Leg], expected: dict[str, str], *, complete: bool, file: str = EXPECTED.name
) -> Iterator[str]:
    """A line for each expected failure that passed, or (in a complete run) that names no scenario."""
    for name in expected:
        ran = [version for version, leg in legs.items() if name in leg]
        passed = [version for version in ran if not legs[version][name]]
        if passed:
            yield f"{name} passes under {', '.join(passed)}: remove it from {file}"
        elif complete and not ran:
            yield f"{name} is no scenario that ran: remove it from {file}"


def table(legs: dict[str, Leg], expected: dict[str, str]) -> str:
    """Scenarios by revision: `ok`, `expected` (to fail), how many checks failed, or `-` where it does not apply."""
    names = list(dict.fromkeys(name for leg in legs.values() for name in leg))
    width = max(map(len, names), default=0)
    lines = [" ".join([" " * width, *(f"{version:>10}" for version in legs)])]
    for name in names:
        cells = [_cell(leg.get(name), name in expected) for leg in legs.values()]
        lines.append(" ".join([name.ljust(width), *(f"{cell:>10}" for cell in cells)]))
    return "\n".join(lines)


def _cell(problems: list[Problem] | None, expected: bool) -> str:
    if problems is None:
        return "-"
    if not problems:
        return "ok"
    return "expected" if expected else f"{len(problems)} FAILED"


def _run(suite: list[str], url: str, version: str, results: Path) -> Leg:
    """Run the suite once. Its output is shown only if it wrote no results."""
    command = [*suite, "server", "--url", url, "--suite", "all", "--spec-version", version]
    command += ["--expected-failures", str(EXPECTED), "-o", str(results)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return _leg(results, "server", version, run.stdout + run.stderr)


def _run_extensions(suite: list[str], url: str, results: Path) -> Leg:
    """The scenarios of extensions, one after the other."""
    output = ""
    for scenario in EXTENSION_SCENARIOS:
        command = [*suite, "server", "--url", url, "--scenario", scenario, "-o", str(results)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=600)
        output += run.stdout + run.stderr
    return _leg(results, "server", EXTENSION_VERSION, output)


def _authorize(suite: list[str], site: authorization.Protected, version: str, results: Path) -> Leg:
    """The scenarios for authorization servers under one revision."""
    output = authorization.run(suite, site, version, take_port(), results)
    return _leg(results, "authorization-server", version, output)


def _leg(results: Path, kind: str, version: str, output: str) -> Leg:
    """Read the results of the suite, and the scenarios that only its output names."""
    leg: Leg = {}
    for path in sorted(results.glob(f"{kind}-*/checks.json"), key=lambda path: path.stat().st_mtime_ns):
        match = re.fullmatch(kind + r"-(.+?)-\d{4}-\d\d-\d\dT.*", path.parent.name)
        if match is None:
            raise SystemExit(f"The suite wrote {path.parent.name}, which names no scenario")
        checks = json.loads(path.read_text())
        leg[match[1]] = _problems(checks)
    # A scenario that crashed leaves no checks: only the summary names it.
    for name in re.findall(r"^Failed to run scenario (\S+):", output, re.MULTILINE):
        leg[name] = [Problem(name, "FAILURE", "the scenario crashed")]
    if not leg:
        raise SystemExit(f"The suite ran no scenario under {version}:\n{output}")
    return leg


def _problems(checks: list[dict[str, Any]]) -> list[Problem]:
    """List the checks that did not pass. A scenario without checks has not passed either."""
    found = [Problem(c["id"], c["status"], c.get("errorMessage") or c["name"]) for c in checks if c["status"] in BAD]
    tested = any(c["status"] == "SUCCESS" and c["id"] != "wire-schema-valid" for c in checks)
    return found if found or tested else [Problem("(none)", "UNTESTED", "the scenario found nothing to test")]


@contextmanager
def _server(options: argparse.Namespace) -> Iterator[str]:
    if options.url:
        yield options.url
        return
    with fixtures_server(options.port):
        yield f"http://127.0.0.1:{options.port}{DOORS[options.door]}"


@contextmanager
def fixtures_server(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The fixtures server in a process of its own, listening."""
    if listens(port):
        raise SystemExit(f"Port {port} is taken; pass --port, or --url to test the server that is there")
    process = subprocess.Popen([sys.executable, "-m", "tests.conformance.server", "--port", str(port)])
    try:
        wait_until(lambda: process.poll() is not None or listens(port), "the fixtures server did not come up")
        if process.returncode is not None:
            raise SystemExit(f"The fixtures server ended with {process.returncode}")
        yield process
    finally:
        process.terminate()
        process.wait(timeout=20)


def listens(port: int) -> bool:
    """Does anybody listen on this port of loopback?"""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    sys.exit(main())
