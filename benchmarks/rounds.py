"""The measurement itself: every subject of a cell in turn, again and again, and the median of what was read.

Taking turns spreads a busy neighbour, or a core that changes its clock, over all subjects alike; comparing them round
by round takes most of it out again.
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
    """Why there is nothing to say; it makes the run fail, unlike any figure."""

    def median(self, attribute: str) -> float:
        """The median of one attribute of the readings."""
        return statistics.median(self.all(attribute))

    def all(self, attribute: str) -> list[float]:
        """One attribute of the readings, in the order they were made."""
        return [getattr(reading, attribute) for reading in self.readings]


@dataclass(slots=True)
class Results:
    """All figures of a run."""

    figures: dict[tuple[Subject, Cell], Figures] = field(default_factory=dict)
    memory_mb: dict[Subject, float] = field(default_factory=dict)
    """Resident memory of the server after the run."""

    def of(self, subject: Subject, cell: Cell) -> Figures | None:
        """The figures of one subject in one cell, when there are any."""
        figures = self.figures.get((subject, cell))
        return figures if figures and figures.readings and not figures.failure else None

    def cpu(self, subject: Subject, cell: Cell) -> float | None:
        """The median CPU time per request in microseconds."""
        figures = self.of(subject, cell)
        return figures.median("cpu_us") if figures else None

    def over(self, subject: Subject, other: Subject | None, cell: Cell) -> float | None:
        """How many microseconds more than `other` a request costs: the median of the rounds, each by itself."""
        return statistics.median(a - b for a, b in pairs) if (pairs := self._pairs(subject, other, cell)) else None

    def ratio(self, subject: Subject, other: Subject | None, cell: Cell) -> float | None:
        """How many times as much as with `other` a request costs: the median of the rounds, each by itself."""
        return statistics.median(a / b for a, b in pairs) if (pairs := self._pairs(subject, other, cell)) else None

    def _pairs(self, subject: Subject, other: Subject | None, cell: Cell) -> list[tuple[float, float]]:
        one, two = self.of(subject, cell), self.of(other, cell) if other else None
        return list(zip(one.all("cpu_us"), two.all("cpu_us"), strict=True)) if one and two else []

    def failures(self) -> Iterator[str]:
        """One line for each cell that gave a wrong answer."""
        for (subject, cell), figures in self.figures.items():
            if figures.failure:
                yield f"{subject.label}; {cell.label}: {figures.failure}"


WriteLine = Callable[[str], None]
Place = tuple[Command, int]
"""A server process: how it is started, and its number of tools."""


def _place(subject: Subject, cell: Cell) -> Place:
    return subject.command, cell.tools


@contextmanager
def serving(places: Sequence[Place]) -> Iterator[dict[Place, Running | str]]:
    """One running server for each place; a text where it could not be started. All are stopped at the end."""
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
    """Measure every subject in every cell it can do.

    Args:
        rounds: How often each is measured; the tables show the median.
        seconds: About how long one measurement takes.
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
    """One measurement. The first of a pair finds out how many requests fill the time."""
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
    """Progress goes beside the tables, not into them."""
    print(line, file=sys.stderr, flush=True)
