"""Journal of the runs of tools: lines at the end of a file, outside of the database, which one write appends whole.

CLOCK_MONOTONIC is one clock for all processes of a machine, and no test shifts it. So the order of the lines of two
processes is known exactly.
"""

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

FIRST_VERSION = "1"
"""Value of SITE_VERSION of a process whose code lacks some tools, as before a deploy."""


class Event(StrEnum):
    """Moments of a run."""

    START = "start"
    """The function of the tool has begun."""
    STEP = "step"
    """An effect within `ctx.run_once`."""
    ASK = "ask"
    """The question is about to be asked, or its answer to be read."""
    ANSWER = "answer"
    EFFECT = "effect"
    END = "end"
    """The last line of the function; it then returns its result."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal."""

    time: float
    """Seconds of CLOCK_MONOTONIC."""
    process: str
    """Name of the process in the run, the same after a restart."""
    number: int
    """Number of the task."""
    run: str
    """Random letters of one run of the function."""
    event: Event


@dataclass(frozen=True, slots=True)
class RunJournal:
    """The journal as one run of a tool writes it."""

    number: int
    run: str = field(default_factory=lambda: secrets.token_hex(6))

    def note(self, event: Event) -> None:
        """Append a line."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        line = f"{now} {os.environ['SITE_PROCESS']} {self.number} {self.run} {event}\n"
        descriptor = os.open(os.environ["SITE_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def read_journal(path: Path) -> list[Entry]:
    """Return the lines of a journal in the order of their time."""
    return sorted(parse_lines(path.read_text().splitlines()), key=lambda entry: entry.time)


def parse_lines(lines: Iterable[str]) -> Iterator[Entry]:
    for line in lines:
        now, process, number, run, event = line.split()
        yield Entry(int(now) / 1e9, process, int(number), run, Event(event))
