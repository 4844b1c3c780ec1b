"""The command: `python -m tests.real_projects [NAME ...] [--operations N] [--seed N] [--netbox FOLDER]`.

It exits with 1 if an answer is wrong, shows a hidden row, or is an internal error.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.real_projects.environments import (
    CACHE,
    MissingSources,
    build_environment_variables,
    build_key,
    create_environment,
)
from tests.real_projects.projects import PROJECTS, RealProject
from tests.support.databases import execute, postgres_template, sqlite_template
from tests.support.services import POSTGRES_URL

FAULTS = ("wrong", "leaks", "internal_errors")


def main() -> None:
    """Try the projects one after the other, and print a table."""
    parser = argparse.ArgumentParser(prog="make real-projects")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PROJECTS)}; all by default")
    parser.add_argument("--operations", type=int, default=300, help="random operations on each project")
    parser.add_argument("--seed", type=int, default=1, help="of the random operations")
    parser.add_argument("--netbox", type=Path, help="folder of NetBox's sources, which are on no package index")
    options = parser.parse_args()
    reports: dict[str, Any] = {}
    for name in options.names or PROJECTS:
        try:
            reports[name] = try_project(PROJECTS[name], options)
        except MissingSources as problem:
            print(f"left out: {problem}")
    print_table(reports)
    sys.exit(any(report[fault] for report in reports.values() for fault in FAULTS))


def try_project(project: RealProject, options: argparse.Namespace) -> dict[str, Any]:
    """Return the report of one project, which is kept as JSON in the cache directory, too."""
    sources = options.netbox if project.name == "netbox" else None
    python = create_environment(project, sources)
    key = build_key(project, python)

    def inside(database: str, *arguments: str) -> str:
        finished = subprocess.run(
            [str(python), "-m", "tests.real_projects.inside", project.name, *arguments],
            env=build_environment_variables(project, sources, database),
            cwd=CACHE,
            stdout=subprocess.PIPE,
            stderr=(CACHE / f"{project.name}.log").open("w"),
            text=True,
            check=False,
        )
        if finished.returncode:
            raise SystemExit(f"{project.name} failed; see {CACHE / project.name}.log")
        return finished.stdout

    if project.has_postgres:
        template = postgres_template(key, POSTGRES_URL, lambda name: print(inside(name, "--migrate"), end=""))
        database = f"real_{project.name}"
        execute(POSTGRES_URL, f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        execute(POSTGRES_URL, f"CREATE DATABASE {database} TEMPLATE {template}")
    else:
        file = CACHE / f"{project.name}.sqlite3"
        file.write_bytes(sqlite_template(key, lambda path: print(inside(str(path), "--migrate"), end="")).read_bytes())
        database = str(file)
    output = inside(database, "--operations", str(options.operations), "--seed", str(options.seed))
    if project.has_postgres:
        execute(POSTGRES_URL, f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
    (CACHE / f"{project.name}.json").write_text(output)
    report: dict[str, Any] = json.loads(output)
    return report


def print_table(reports: dict[str, Any]) -> None:
    """Print a row for each project, and every fault."""
    print(
        f"{'project':10} {'models':>6} {'views':>6} {'tools':>6} {'operations':>10} {'wrong':>6} {'leaks':>6}"
        f" {'internal':>8}"
    )
    for name, report in reports.items():
        counts = [len(report[fault]) for fault in FAULTS]
        operations = sum(report["operations"].values())
        print(
            f"{name:10} {report['models']:6} {report['views']:6} {report['tools']:6} {operations:10}"
            f" {counts[0]:6} {counts[1]:6} {counts[2]:8}"
        )
    for name, report in reports.items():
        for fault in FAULTS:
            for text in report[fault][:20]:
                print(f"{name}, {fault}: {text}")


if __name__ == "__main__":
    main()
