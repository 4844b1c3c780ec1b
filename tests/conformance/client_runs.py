"""The suite's scenarios for clients: each in a process of the suite's, which starts the client under test."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.server import fixtures_database

AT_ONCE = 2
"""Scenarios that run at the same time; the suite itself would start all of them at once."""
LIMIT = 60
"""Seconds that the client has."""
EXTENSIONS = "extensions"
"""The leg of what belongs to no revision."""
Judge = Callable[[list[dict[str, Any]]], list[Any]]


class Run(NamedTuple):
    """A scenario under a revision, or under the one that the suite chooses."""

    leg: str
    scenario: str
    version: str | None


class Outcome(NamedTuple):
    """What came of a run."""

    run: Run
    checks: list[dict[str, Any]]
    complaint: str
    """What the suite said where it was not content; it may be although no check failed: the client broke down."""


def runs(suite: list[str], versions: tuple[str, ...]) -> list[Run]:
    """Every scenario, under each of the revisions that it is for; what is for no revision once."""
    listed = subprocess.run([*suite, "list", "--client"], capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.findall(r"^ +- (\S+) \[(.*)\]$", listed, re.MULTILINE)
    if not found:
        raise SystemExit(f"The suite lists no scenario for clients:\n{listed}")
    wanted = [Run(version, name, version) for version in versions for name, those in found if version in those]
    return wanted + [Run(EXTENSIONS, name, None) for name, those in found if those == "extension"]


def outcomes(suite: list[str], wanted: list[Run], results: Path) -> list[Outcome]:
    """Run scenarios, in their order."""
    with fixtures_database() as environment, ThreadPoolExecutor(AT_ONCE) as pool:
        numbered = enumerate(wanted)
        return list(pool.map(lambda each: _outcome(suite, each[1], results / str(each[0]), environment), numbered))


def _outcome(suite: list[str], run: Run, results: Path, environment: dict[str, str]) -> Outcome:
    command = [*suite, "client", "--command", f"{sys.executable} -m tests.conformance.client"]
    command += ["--scenario", run.scenario, "--timeout", str(LIMIT * 1000), "--output-dir", str(results)]
    command += ["--spec-version", run.version] if run.version else []
    said = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT * 2,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environment},
        check=False,
    )
    checks = [check for path in results.rglob("checks.json") for check in json.loads(path.read_text())]
    return Outcome(run, checks, (said.stdout + said.stderr)[-2000:] if said.returncode else "")
