"""`python -m benchmarks.records`: CPU time of the records of calls.

The figures are those of each call and of each write. The calls are those of `python -m benchmarks`, "add" through the
ASGI application, in one process and without a server. A clock reads the CPU time of the thread before and after the
recorder, in the middle of each call. So the caches are as cold as in a server, and other load changes the figure
little. Under the load of a server, on a busy machine, the same call differed by a tenth from round to round, and a few
microseconds could not be seen. The work of the recorder's thread is measured in the same way: for each call, for each
write, which comes every two seconds, and for each report, which comes every five.

The last line is computed: the part of a core that does nothing but such calls.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from time import thread_time_ns
from typing import Any

from benchmarks.inprocess import Application, Caller
from benchmarks.processes import ROOT
from benchmarks.report import table
from benchmarks.serve import project
from benchmarks.wire import Dialect, Work

ROUND_CALLS = 1000
WRITE_SECONDS, REPORT_SECONDS = 2.0, 5.0
MAX_SHARE = 0.02
"""Part of a core that the defaults may take."""
KINDS = ("default", "all")
LABELS = {
    "call": "a call without records, us",
    "path": "records: in the call, us",
    "thread": "records: in the thread, for each call, us",
    "write": "records: a write, ms",
    "report": "records: a report, ms",
    "share": "records, % of a busy core",
}


def take(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the microseconds of CPU time that a function takes in its thread."""
    start = thread_time_ns()
    function(*arguments)
    return (thread_time_ns() - start) / 1000


async def measure(application: Application, rounds: int) -> dict[str, list[float]]:
    """Return the figures of each round."""
    from mcp_django.contrib.control_room.recording.recorder import RECORDER, CallRecorder
    from mcp_django.runtime.calls.observer import add_outcome_recorder, remove_outcome_recorder

    recorder, caller = CallRecorder(starts_thread=False), Caller(application, Work.ADD, Dialect.STATELESS)
    remove_outcome_recorder(RECORDER.queue.record)
    await caller.open()

    taken: list[float] = []
    clock = statistics.median(take(bool) for _ in range(10_000))

    def record(*arguments: Any) -> None:
        taken.append(take(recorder.queue.record, *arguments))

    async def call_often(number: int) -> float:
        taken.clear()
        start = thread_time_ns()
        for _ in range(number):
            await caller.call()
        return (thread_time_ns() - start) / 1000 / number

    add_outcome_recorder(record)

    def report() -> None:
        recorder._reporter._reported_at = 0.0
        recorder._reporter.report(0)

    found: dict[str, list[float]] = {name: [] for name in LABELS}
    for number in range(-1, rounds):
        whole = await call_often(ROUND_CALLS)
        path = statistics.fmean(taken) - clock
        many = await asyncio.to_thread(take, recorder.flush)
        await call_often(1)
        write = await asyncio.to_thread(take, recorder.flush)
        values = {
            "call": whole - path - 2 * clock,
            "path": path,
            "thread": (many - write) / (ROUND_CALLS - 1),
            "write": write / 1000,
            "report": await asyncio.to_thread(take, report) / 1000,
        }
        fixed = values["write"] / WRITE_SECONDS + values["report"] / REPORT_SECONDS
        values["share"] = (values["path"] + values["thread"]) / values["call"] * 100 + fixed / 10
        if number >= 0:  # The first one warms caches and connections.
            for name, value in values.items():
                found[name].append(value)
    return found


def describe(values: list[float]) -> str:
    """Return the median and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"**{middle:.2f}** ({low:.2f}-{high:.2f})"


def main(arguments: list[str] | None = None) -> None:
    """Run each kind of records in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.kind:
        with project(records=options.kind):
            from benchmarks.site.asgi import application

            found = asyncio.run(measure(application, options.rounds))
        for name in LABELS:
            print(f"{name}: {describe(found[name])}")
        return

    columns = []
    for kind in KINDS:
        command = [sys.executable, "-m", "benchmarks.records", "--kind", kind, "--rounds", str(options.rounds)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        columns.append(dict(line.partition(": ")[::2] for line in ran.stdout.splitlines() if ": " in line))
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{options.rounds} rounds, load of the machine {load} on {os.cpu_count()} cores")
    print(f"the aim for the defaults is at most {MAX_SHARE:.0%} of a core\n")
    print(table(["", *KINDS], [[label, *(each[name] for each in columns)] for name, label in LABELS.items()]))


if __name__ == "__main__":
    main()
