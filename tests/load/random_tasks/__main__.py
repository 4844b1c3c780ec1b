"""Run random tasks under faults: `python -m tests.load.random_tasks --seed 7 --tasks 500 --seconds 300`.

Two servers, two processes of `mcp_worker` and Celery share the rows of a PostgreSQL of the run's own, and a Redis.
Their clocks differ by up to a minute. Two of them run old code at first. The same seed repeats the calls and faults.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.load.random_tasks.judge import group_runs
from tests.load.random_tasks.run import CLOCK_DIFFERENCE_SECONDS, LEASE_SECONDS, Figures, RandomRun

KINDS = ("lost", "changed", "repeated", "at once", "rows", "wrong end", "failed again", "failed, finished")


def main() -> int:
    """Run, and print the figures. Returns 1 for a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.random_tasks", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--lease", type=float, default=LEASE_SECONDS)
    parser.add_argument("--clock-difference", type=float, default=CLOCK_DIFFERENCE_SECONDS)
    parser.add_argument("--directory", type=Path, help="directory for the journal and the logs, to keep them")
    options = parser.parse_args()
    run = RandomRun(
        seed=options.seed,
        tasks=options.tasks,
        seconds=options.seconds,
        lease=options.lease,
        clock_difference=options.clock_difference,
    )
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        figures = run.run(directory)
    print_figures(figures)
    print(f"seed {run.seed}, lease {run.lease:g} s, {time.monotonic() - started:.0f} s")
    return 1 if figures.verdict.problems else 0


def print_figures(figures: Figures) -> None:
    verdict, runs = figures.verdict, group_runs(figures.entries)
    print(f"tasks: {figures.acknowledged} acknowledged, {figures.unacknowledged} calls without an answer")
    print(f"ends: {dict(verdict.ends)}")
    print(f"plain functions that ran on after their lease: {verdict.unstopped}")
    print(f"runs: {sum(map(len, runs.values()))}, lines: {len(figures.entries)}")
    print(f"faults: {dict(Counter(str(fault.kind) for fault in figures.faults))}")
    for fault in figures.faults:
        print(f"  {fault.begin:.1f} to {fault.end:.1f}: {fault.kind} {fault.process}")
    print(f"longest delay of a thread: {figures.delay:.2f} s")
    for tool, status in sorted(figures.statuses):
        print(f"  {tool}: {status} {figures.statuses[tool, status]}")
    for kind in dict.fromkeys([*KINDS, *verdict.problems]):
        print(f"{kind}: {verdict.count(kind)}")
    for kind, texts in verdict.problems.items():
        for text in texts:
            print(f"  {kind}: {text}")


if __name__ == "__main__":
    sys.exit(main())
