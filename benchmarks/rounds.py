"""Rounds of a measurement, in which all subjects of a cell take turns.

Because the subjects take turns, other load of the machine, or a core that changes its clock, affects all of them alike.
Comparing the subjects round by round removes most of the rest. The tables show medians.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from benchmarks.load import Load, Reading, WrongAnswer, memory_mb
from benchmarks.processes import Command, NotStarted, Running, cores, on_core, start, stop, wait
from benchmarks.socket_load import SocketLoad
from benchmarks.subjects import Cell, Subject, Transport
from benchmarks.wire import Target

FEWEST, MOST = 32, 20_000
"""Bounds of the requests in one measurement."""


@dataclass(slots=True)
class Figures:
    """The measurement of one subject in one cell."""

    readings: list[Reading] = field(default_factory=list)
    failure: str = ""
    """Why there are no readings. A failure, unlike any figure, makes the run fail."""

    def median(self, attribute: str) -> float:
        """Return the median of one attribute of the readings."""
        return statistics.median(self.all(attribute))

    def all(self, attribute: str) -> list[float]:
        """Return one attribute of all readings, in their order."""
        return [getattr(reading, attribute) for reading in self.readings]


@dataclass(slots=True)
class Results:
    """All figures of a run."""

    figures: dict[tuple[Subject, Cell], Figures] = field(default_factory=dict)
    memory_mb: dict[Subject, float] = field(default_factory=dict)
    """Resident memory of the server after the run."""

    def of(self, subject: Subject, cell: Cell) -> Figures | None:
        """Return the figures of a subject in a cell, or None."""
        figures = self.figures.get((subject, cell))
        return figures if figures and figures.readings and not figures.failure else None

    def cpu(self, subject: Subject, cell: Cell) -> float | None:
        """Return the median CPU time per request in microseconds."""
        figures = self.of(subject, cell)
        return figures.median("cpu_us") if figures else None

    def over(self, subject: Subject, other: Subject | None, cell: Cell) -> float | None:
        """Return how many microseconds more than `other` a request costs.

        Each round gives a difference; the result is their median.
        """
        return statistics.median(a - b for a, b in pairs) if (pairs := self._pairs(subject, other, cell)) else None

    def ratio(self, subject: Subject, other: Subject | None, cell: Cell) -> float | None:
        """Return the ratio of the cost of a request to that of `other`.

        Each round gives a ratio; the result is their median.
        """
        return statistics.median(a / b for a, b in pairs) if (pairs := self._pairs(subject, other, cell)) else None

    def _pairs(self, subject: Subject, other: Subject | None, cell: Cell) -> list[tuple[float, float]]:
        one, two = self.of(subject, cell), self.of(other, cell) if other else None
        return list(zip(one.all("cpu_us"), two.all("cpu_us"), strict=True)) if one and two else []

    def failures(self) -> Iterator[str]:
        """Yield a line for each cell that failed."""
        for (subject, cell), figures in self.figures.items():
            if figures.failure:
                yield f"{subject.label}; {cell.label}: {figures.failure}"


WriteLine = Callable[[str], None]
Place = tuple[Command, int]
"""A server process: its command, and its number of tools."""


def _place(subject: Subject, cell: Cell) -> Place:
    return subject.command, cell.tools


@contextmanager
def serving(places: Sequence[Place]) -> Iterator[dict[Place, Running | str]]:
    """Start a server for each place, and stop all of them at the end.

    A place whose server did not start has a text.
    """
    core, _ = cores()
    running: dict[Place, Running] = {}
    try:
        for command, tools in dict.fromkeys(places):
            environment = (*command.environment, ("NTOOLS", str(tools)))
            running[command, tools] = start(replace(command, environment=environment), core)
        found: dict[Place, Running | str] = {}
        for place, server in running.items():
            try:
                wait(server)
                found[place] = server
            except NotStarted as error:
                found[place] = f"the server did not start: {error}"
        yield found
    finally:
        for server in running.values():
            stop(server)


def run(
    subjects: Sequence[Subject], cells: Sequence[Cell], *, rounds: int, seconds: float, write_line: WriteLine
) -> Results:
    """Measure every subject in each cell that it supports.

    Args:
        rounds: The number of measurements of each. The tables show the median.
        seconds: The approximate duration of one measurement.
        write_line: Called with each line of progress.
    """
    results = Results()
    pairs = [(subject, cell) for cell in cells for subject in subjects if subject.can(cell)]
    sizes: dict[tuple[Subject, Cell], int] = {}
    with serving([_place(*pair) for pair in pairs]) as servers, on_core(cores()[1]):
        for number in range(rounds):
            write_line(f"round {number + 1} of {rounds}")
            for subject, cell in pairs:
                figures = results.figures.setdefault((subject, cell), Figures())
                server = servers[_place(subject, cell)]
                if isinstance(server, str):
                    figures.failure = server
                if isinstance(server, str) or figures.failure:
                    continue
                try:
                    reading = _measure(subject, cell, server, sizes, seconds)
                except (OSError, WrongAnswer) as error:
                    figures.failure = f"{type(error).__name__}: {error}"
                    continue
                figures.readings.append(reading)
        for subject, cell in pairs:
            server = servers[_place(subject, cell)]
            if not isinstance(server, str) and server.process.poll() is None:
                results.memory_mb.setdefault(subject, memory_mb(server.process.pid))
    return results


def _measure(
    subject: Subject, cell: Cell, server: Running, sizes: dict[tuple[Subject, Cell], int], seconds: float
) -> Reading:
    """Make one measurement.

    The first one of a subject and cell determines the number of requests that take `seconds`.
    """
    load = _load(subject, cell, server)
    try:
        key = (subject, cell)
        if key not in sizes:
            load.measure(FEWEST)
            at_once = cell.connections * cell.in_flight
            speed = load.measure(max(FEWEST, 4 * at_once)).per_second
            sizes[key] = max(FEWEST, 2 * at_once, min(MOST, round(speed * seconds)))
        load.measure(max(cell.connections, sizes[key] // 8))
        return load.measure(sizes[key])
    finally:
        load.close()


def _load(subject: Subject, cell: Cell, server: Running) -> Load | SocketLoad:
    path = subject.path_for(cell.work)
    target = Target(port=server.port, path=path, dialect=subject.dialect, headers=server.headers, asks=subject.asks)
    pid = server.process.pid
    if subject.transport is Transport.WEBSOCKET:
        return SocketLoad(target, connections=cell.connections, in_flight=cell.in_flight, pid=pid)
    return Load(target, cell.work, connections=cell.connections, tools=cell.tools, pid=pid)


def write_to_stderr(line: str) -> None:
    """Print a line of progress to standard error, because the tables go to the output."""
    print(line, file=sys.stderr, flush=True)
