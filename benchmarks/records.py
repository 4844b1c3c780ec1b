"""`python -m benchmarks.records`: CPU time of records of calls, beside the same calls without.

The servers are those of `python -m benchmarks`: one uvicorn worker each, pinned to one core, with the load "add, c=32".
They take turns, in another order each round. Each figure is that of one round, and the median of the rounds is shown.

A recorder works for each call, and for each write, every two seconds. So there are two readings of the CPU time of the
whole process, user and system, all threads. One is of a load. It starts with an empty queue, and ends after the last
call was written. The other one is of some seconds with two calls a second: with a write every two seconds, and hardly
a call. On a busy machine, a load takes longer, and has more writes than on a quiet one. The last column is therefore
computed for a core that does nothing but calls.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass

from benchmarks.load import Load, WrongAnswer, cpu_clock
from benchmarks.processes import Running, cores, on_core
from benchmarks.report import table
from benchmarks.rounds import say_to_stderr, serving
from benchmarks.subjects import ADD_MANY, served
from benchmarks.wire import Dialect, Target

COMMANDS = {name: served("--records", name) for name in ("none", "default", "all")}
LABELS = {"none": "without records", "default": "records, defaults", "all": "records of all calls"}
MAX_SHARE = 0.02
"""Part of a core that the defaults may take."""
REST_SECONDS = 2.5
"""Pause after a load, longer than the recorder waits between two writes."""
SLOW_SECONDS, SLOW_INTERVAL_SECONDS = 8.0, 0.5
WARMING = 500


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU time of one server in one round, in microseconds."""

    load: float
    load_seconds: float
    slow: float
    slow_seconds: float

    @property
    def fixed(self) -> float:
        """CPU time of a second with hardly a call."""
        return self.slow / self.slow_seconds


def measure(server: Running, requests: int) -> Reading:
    """Measure a load, and some seconds with few calls."""
    pid = server.process.pid
    _send(server, WARMING, ADD_MANY.connections)
    time.sleep(REST_SECONDS)
    cpu, start = cpu_clock(pid), time.perf_counter()
    _send(server, requests, ADD_MANY.connections)
    time.sleep(REST_SECONDS)
    middle, middle_cpu = time.perf_counter(), cpu_clock(pid)
    while time.perf_counter() < middle + SLOW_SECONDS:
        _send(server, 1, 1)
        time.sleep(SLOW_INTERVAL_SECONDS)
    end, end_cpu = time.perf_counter(), cpu_clock(pid)
    return Reading((middle_cpu - cpu) / 1000, middle - start, (end_cpu - middle_cpu) / 1000, end - middle)


def _send(server: Running, requests: int, connections: int) -> None:
    """Send requests on new connections, because a server closes idle ones."""
    target = Target(port=server.port, path="/mcp", dialect=Dialect.STATELESS, headers=server.headers)
    load = Load(target, ADD_MANY.work, connections=connections, tools=ADD_MANY.tools, pid=server.process.pid)
    try:
        load.measure(requests)
    finally:
        load.close()


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of the records of one round."""

    call: float
    """Microseconds of each call."""
    second: float
    """Microseconds of each second."""
    share: float
    """Part of a core that does nothing but calls."""

    @classmethod
    def compare(cls, records: Reading, without: Reading, requests: int) -> Cost:
        """Return the difference of two readings."""
        second = records.fixed - without.fixed
        work = [each.load - each.fixed * each.load_seconds for each in (records, without)]
        return cls((work[0] - work[1]) / requests, second, (work[0] - work[1]) / work[1] + second / 1e6)


def describe(values: list[float], form: str) -> str:
    """Return the median and the quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return f"**{statistics.median(values):{form}}** ({low:{form}} to {high:{form}})"


def main(arguments: list[str] | None = None) -> int:
    """Run, print the table. Returns 1 when an answer was wrong or a server did not start."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=8000, help="in one load (8000)")
    options = parser.parse_args(arguments)
    rounds, requests = options.rounds, options.requests
    found: dict[str, list[Reading]] = {name: [] for name in COMMANDS}
    with serving([(command, ADD_MANY.tools) for command in COMMANDS.values()]) as places, on_core(cores()[1]):
        servers = {name: places[command, ADD_MANY.tools] for name, command in COMMANDS.items()}
        for number in range(rounds):
            say_to_stderr(f"round {number + 1} of {rounds}")
            names = list(COMMANDS)
            names = names[number % 3 :] + names[: number % 3]
            for name in names if number % 2 else reversed(names):
                server = servers[name]
                try:
                    if isinstance(server, str):
                        raise WrongAnswer(server)
                    found[name].append(measure(server, requests))
                except (OSError, WrongAnswer) as error:
                    say_to_stderr(f"FAILED {name}: {error}")
                    return 1

    bare = found["none"]
    rows = [[LABELS["none"], describe([each.load / requests for each in bare], ".0f"), "", "", ""]]
    pairs = {
        f"{LABELS['none']}, to the round before": (bare[1:], bare[:-1]),
        **{LABELS[name]: (found[name], bare) for name in ("default", "all")},
    }
    for label, (records, without) in pairs.items():
        costs = [Cost.compare(*pair, requests) for pair in zip(records, without, strict=True)]
        rows.append(
            [
                label,
                describe([each.load / requests for each in records], ".0f"),
                describe([each.call for each in costs], "+.1f"),
                describe([each.second / 1000 for each in costs], "+.1f"),
                describe([each.share * 100 for each in costs], "+.1f"),
            ]
        )
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{rounds} rounds of {requests:,} requests, load of the machine {load} on {os.cpu_count()} cores")
    print(f"the aim for the defaults is at most {MAX_SHARE:.0%} of a core\n")
    heading = ["", "CPU us of a call", "of it records, us", "records, ms a second", "records, % of a busy core"]
    print(table(heading, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
