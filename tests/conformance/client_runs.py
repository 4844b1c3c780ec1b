"""The suite's scenarios for clients: each revision in a process of the suite's, which starts the client under test."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance import client_command
from tests.conformance.server import fixtures_database

LIMIT = 1200
"""Seconds for the scenarios under one revision."""
EXTENSIONS = "extensions"
"""The leg of what belongs to no revision."""
MAX_WAITING = 128
"""Clients that wait for their turn: more than a revision has scenarios."""
ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """Result of a scenario."""

    leg: str
    scenario: str
    checks: list[dict[str, Any]]
    complaint: str
    """Output of a client that ended with an error; also without a failed check."""


def outcomes(suite: list[str], versions: tuple[str, ...], results: Path) -> Iterator[Outcome]:
    """Run every scenario under each of its revisions, and once if it has none."""
    results.mkdir(parents=True)
    with fixtures_database() as environment, _client_processes(results / "clients", environment) as command:
        tested = [*suite, "client", "--command", command]
        for version in versions:
            yield from _leg(version, [*tested, "--suite", "all", "--spec-version", version], results / version)
        ran = set()
        for outcome in _leg(EXTENSIONS, [*tested, "--suite", EXTENSIONS], results / EXTENSIONS):
            ran.add(outcome.scenario)
            yield outcome
        # The suite knows extensions that none of its selections includes.
        for scenario in _extension_scenarios(suite):
            if scenario not in ran:
                _run([*tested, "--scenario", scenario], results / EXTENSIONS)
                yield _outcome(EXTENSIONS, scenario, results / EXTENSIONS)


def _extension_scenarios(suite: list[str]) -> list[str]:
    listed = subprocess.run([*suite, "list", "--client"], capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.findall(r"^ +- (\S+) \[extension\]$", listed, re.MULTILINE)
    if not found:
        raise SystemExit(f"The suite lists no extension for clients:\n{listed}")
    return found


@contextmanager
def _client_processes(path: Path, environment: dict[str, str]) -> Iterator[str]:
    """Keep a process that forks clients, listening at a path. Yield the command that starts a client."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        # A client that is started before its modules are imported waits here.
        listener.listen(MAX_WAITING)
        command = [sys.executable, "-m", "tests.conformance.client_processes", str(listener.fileno())]
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL
        )
    try:
        yield shlex.join([sys.executable, "-I", "-S", client_command.__file__, str(path)])
    finally:
        process.terminate()
        process.wait()


def _leg(leg: str, command: list[str], results: Path) -> Iterator[Outcome]:
    """Run scenarios at once; the clients take turns."""
    run = _run(command, results)
    scenarios = re.findall(r"^[✓✗-] (\S+): ", run.stdout, re.MULTILINE)
    if not scenarios:
        raise SystemExit(f"The suite ran no scenario for clients under {leg}:\n{run.stdout}{run.stderr}")
    for scenario in scenarios:
        yield _outcome(leg, scenario, results)


def _run(command: list[str], results: Path) -> subprocess.CompletedProcess[str]:
    limits = ["--timeout", str(LIMIT * 1000), "--output-dir", str(results)]
    return subprocess.run([*command, *limits], capture_output=True, text=True, timeout=LIMIT, check=False)


def _outcome(leg: str, scenario: str, results: Path) -> Outcome:
    """Read the results of a scenario; one that crashed has none."""
    found = list(results.glob(f"{scenario}-[0-9][0-9][0-9][0-9]-*/checks.json"))
    if not found:
        return Outcome(leg, scenario, [{"id": scenario, "status": "FAILURE", "name": "the scenario crashed"}], "")
    errors = found[0].with_name("stderr.txt").read_text().rstrip()
    complaint = "" if errors.endswith(f"{client_command.ENDED} 0") else errors[-2000:]
    return Outcome(leg, scenario, json.loads(found[0].read_text()), complaint)
