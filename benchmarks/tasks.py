"""`python -m benchmarks.tasks --postgres URL`: tasks finished in a minute.

One and two processes of `mcp_worker` finish the tasks. The rows are copies of a row that a call created. The time is
that from the first attempt to the last end in the rows, so that the start of a worker does not count. `--before
CHECKOUT` measures another checkout, in turns with this one. The statements of a task are counted in a run of their own.

`--calls` measures ordinary calls instead: those of a tool without `task=`, on a server with the extension and on one
without it. It needs no PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import rounds
from benchmarks.log import database
from benchmarks.report import spread, table
from benchmarks.subjects import ADD_MANY, ADD_ONE, Family, Subject, served
from benchmarks.wire import Dialect

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).resolve().parent / "servers" / "task_worker.py"
CONCURRENCY = 16
WORKERS = (1, 2)
COPY = """
INSERT INTO mcp_tasks_task (id, owner_hash, owner, server, tool, arguments, context, origin, revision, status,
    status_message, result, error, input_requests, is_error, is_followed, ttl_ms, poll_ms, queue, attempts, losses,
    max_losses, worker, created, updated, expires)
SELECT 'copy' || number, owner_hash, owner, server, tool, arguments, context, origin, revision, 'working', '', '', '',
    '', FALSE, FALSE, ttl_ms, poll_ms, queue, 0, 0, 0, '', now(), now(), now() + interval '1 hour'
FROM (SELECT * FROM mcp_tasks_task WHERE id NOT LIKE 'copy%%' LIMIT 1) AS task, generate_series(1, %s) AS number
"""
FIGURES = """
SELECT count(*), extract(epoch FROM max(task.finished) - min(attempt.started))
FROM mcp_tasks_task AS task JOIN mcp_tasks_taskattempt AS attempt ON attempt.task_id = task.id
WHERE task.id LIKE 'copy%' AND task.status = 'completed'
"""


class Project:
    """A checkout, and its database."""

    def __init__(self, checkout: Path, entry: dict[str, Any], url: str) -> None:
        self._environ = {**os.environ, "PYTHONPATH": str(checkout), "BENCH_TASK_DATABASE": json.dumps(entry)}
        self._url = url
        self.run("migrate")
        self.run("create", 1)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start the script with a subcommand."""
        command = [sys.executable, str(SCRIPT), *map(str, arguments)]
        return subprocess.Popen(command, env=self._environ, stdout=subprocess.PIPE, text=True)

    def run(self, *arguments: object) -> str:
        """Run the script with a subcommand; return its output. Raises RuntimeError."""
        process = self.start(*arguments)
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{arguments} ended with {process.returncode}")
        return output

    def insert(self, count: int) -> None:
        """Replace the copied tasks by new ones."""
        with psycopg.connect(self._url) as connection:
            connection.execute("DELETE FROM mcp_tasks_taskattempt")
            connection.execute("DELETE FROM mcp_tasks_task WHERE id LIKE 'copy%'")
            connection.execute("UPDATE mcp_tasks_task SET status = 'completed'")
            connection.execute(COPY, [count])

    def measure(self, count: int, workers: int) -> float:
        """Return the tasks that the workers finish in a minute.

        Raises RuntimeError if a task has no result.
        """
        self.insert(count)
        for process in [self.start("work", CONCURRENCY) for _ in range(workers)]:
            process.wait()
        with psycopg.connect(self._url) as connection:
            row = connection.execute(FIGURES).fetchone()
        if row is None or row[0] != count:
            raise RuntimeError(f"{row and row[0]} of {count} tasks were completed")
        return 60 * count / float(row[1])

    def count_statements(self, count: int) -> dict[str, float]:
        """Return the statements of a task, by their first words."""
        self.insert(count)
        found = json.loads(self.run("statements", CONCURRENCY))
        return {words: number / count for words, number in found.items()}


@contextmanager
def open_project(checkout: Path, postgres: str) -> Iterator[Project]:
    """Yield a project with a database of its own, and remove the database afterwards."""
    with database(postgres) as entry:
        yield Project(checkout, entry, f"{postgres.rpartition('/')[0]}/{entry['NAME']}")


def measure_calls(number: int, seconds: float) -> int:
    """Print the cost of calls without tasks, with and without the extension.

    Returns 1 for a wrong answer.
    """
    rows, cells = [], (ADD_ONE, ADD_MANY)
    for dialect, name in ((Dialect.STATELESS, "modern"), (Dialect.HANDSHAKE, "legacy")):
        for label, options in (("without the extension", ()), ("with the extension", ("--tasks",))):
            command = served(*options)
            rows.append(Subject(label=f"{name}, {label}", family=Family.OURS, command=command, dialect=dialect))
    results = rounds.run(rows, cells, rounds=number, seconds=seconds, write_line=rounds.write_to_stderr)
    costs = [[row.label, *(spread(results.of(row, cell)) for cell in cells)] for row in rows]
    ratios = [
        [extended.label, *(f"{results.ratio(extended, plain, cell) or 0:.3f}" for cell in cells)]
        for plain, extended in zip(rows[::2], rows[1::2], strict=True)
    ]
    labels = [cell.label for cell in cells]
    print("CPU microseconds of the server process per call: median (fewest-most)\n\n" + table(["", *labels], costs))
    print("\nTimes the cost without the extension\n\n" + table(["", *labels], ratios))
    failures = list(results.failures())
    for line in failures:
        rounds.write_to_stderr(f"FAILED {line}")
    return 1 if failures else 0


def main() -> int:
    """Run, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasks", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--postgres", metavar="URL")
    chosen.add_argument("--calls", action="store_true", help="measure calls of a tool without tasks")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.calls:
        return measure_calls(options.rounds * 3, 0.35)
    with open_project(ROOT, options.postgres) as now:
        if options.before is None:
            compare({"mcp_worker": now}, options)
        else:
            with open_project(options.before.resolve(), options.postgres) as before:
                compare({"mcp_worker": now, "before": before}, options)
    return 0


def compare(projects: dict[str, Project], options: argparse.Namespace) -> None:
    """Measure projects in turns."""
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.rounds):
        for workers in WORKERS:
            for label, project in projects.items():
                found.setdefault((label, workers), []).append(project.measure(options.tasks, workers))
    rows = [[label, *(f"{statistics.median(found[label, number]):.0f}" for number in WORKERS)] for label in projects]
    print(table(["finished tasks a minute", *(f"workers: {number}" for number in WORKERS)], rows))
    for label, project in projects.items():
        counts = project.count_statements(options.tasks)
        print(f"\n{label}: {sum(counts.values()):.1f} statements for a task")
        print("\n".join(f"  {number:5.2f}  {words}" for words, number in counts.items() if number >= 0.01))


if __name__ == "__main__":
    sys.exit(main())
