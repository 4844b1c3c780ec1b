"""Faults of a run, planned from a seed.

Times are fractions of the lease, so that each fault is clearly shorter or clearly longer than one. Faults follow each
other with a pause, because the judge explains the end of a task by the fault of its time.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """Kinds of faults. Those of a process come first, those of services last."""

    KILL = "kill"
    """SIGKILL of the process and its children; it starts again at once."""
    TERMINATE = "terminate"
    """SIGTERM; it starts again after its end."""
    DEPLOY = "deploy"
    """As TERMINATE, and it starts with new code."""
    PAUSE = "pause"
    """SIGSTOP, and SIGCONT after some seconds."""
    CUT = "cut"
    """Its connections to PostgreSQL are reset, and new ones for some seconds."""
    STALL = "stall"
    """Its connections to PostgreSQL pass nothing on for some seconds, and then all of it, late."""
    DEAFEN = "deafen"
    """PostgreSQL gets its statements, but the answers are lost, and its connections are reset in the end."""
    POSTGRES_CRASH = "postgres crash"
    POSTGRES_RESTART = "postgres restart"
    """As by an administrator, in order."""
    CRASH_AT_QUESTION = "postgres crash at a question"
    """PostgreSQL crashes when a tool is about to ask."""
    REDIS_CRASH = "redis crash"


SHORT_SHARE = (0.12, 0.3)
"""Seconds of a fault that no task may notice, as shares of the lease."""
LONG_SHARE = (1.3, 1.8)
"""Seconds of a fault that lasts longer than a lease, as shares of it."""
NEAR_SHARE = (0.75, 1.0)
ENDS = frozenset({FaultKind.KILL, FaultKind.TERMINATE, FaultKind.DEPLOY})
"""Faults that end a process."""
ISOLATES = frozenset({FaultKind.PAUSE, FaultKind.CUT, FaultKind.STALL, FaultKind.DEAFEN})
"""Faults that keep one process from PostgreSQL."""
OUTAGES = frozenset({FaultKind.POSTGRES_CRASH, FaultKind.POSTGRES_RESTART, FaultKind.CRASH_AT_QUESTION})
"""Faults that keep all processes from PostgreSQL."""
ROUND = (
    (FaultKind.KILL, (0.0, 0.0)),
    (FaultKind.PAUSE, LONG_SHARE),
    (FaultKind.CUT, LONG_SHARE),
    (FaultKind.POSTGRES_CRASH, SHORT_SHARE),
    (FaultKind.STALL, LONG_SHARE),
    (FaultKind.CRASH_AT_QUESTION, SHORT_SHARE),
    (FaultKind.TERMINATE, (0.0, 0.0)),
    (FaultKind.REDIS_CRASH, LONG_SHARE),
    (FaultKind.DEAFEN, LONG_SHARE),
    (FaultKind.POSTGRES_CRASH, LONG_SHARE),
    (FaultKind.PAUSE, SHORT_SHARE),
    (FaultKind.CUT, SHORT_SHARE),
    (FaultKind.POSTGRES_RESTART, NEAR_SHARE),
    (FaultKind.STALL, SHORT_SHARE),
    (FaultKind.DEAFEN, SHORT_SHARE),
)
"""Faults that a run goes through in a random order, again and again, each with its shares of the lease."""
GAP_SECONDS = (2.5, 4.0)
"""Seconds without a fault between two faults."""
EFFORT_SECONDS = 2.0
"""Mean seconds that a fault takes beside its length: programs end, start and recover."""
DEPLOY_SHARE = 0.4
"""Share of the run after which the old code is replaced."""
SECOND_TARGET_RATIO = 0.3
"""Share of the faults of a process that hit a second process as well, a little later."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault to come. `process` is empty for a service."""

    kind: FaultKind
    process: str = ""
    seconds: float = 0.0
    delay: float = 0.0
    """Seconds after the start of its step."""


@dataclass(frozen=True, slots=True)
class FaultStep:
    """Faults that happen together, after a pause without any."""

    gap: float
    """Seconds of the pause."""
    faults: tuple[PlannedFault, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault as it was. `process` is empty for a service."""

    kind: FaultKind
    process: str
    begin: float
    """Seconds of CLOCK_MONOTONIC."""
    end: float


def plan_faults(
    chance: random.Random, *, seconds: float, lease: float, processes: Sequence[str], old: Sequence[str]
) -> list[FaultStep]:
    """Plan the faults of a run that lasts about `seconds`, and between them the deploy of the `old` processes."""
    steps: list[FaultStep] = []
    at, is_deployed = 0.0, False
    for kind, shares in _draw_kinds(chance):
        gap, length = chance.uniform(*GAP_SECONDS), chance.uniform(*shares) * lease
        at += gap + length + EFFORT_SECONDS
        if at > seconds:
            return steps
        if at > DEPLOY_SHARE * seconds and not is_deployed:
            is_deployed = True
            steps += [FaultStep(gap, (PlannedFault(FaultKind.DEPLOY, process),)) for process in old]
        targets = [""]
        if kind in ENDS | ISOLATES:
            targets = chance.sample(processes, 2 if chance.random() < SECOND_TARGET_RATIO else 1)
        faults = (PlannedFault(kind, name, length, number * chance.random()) for number, name in enumerate(targets))
        steps.append(FaultStep(gap, tuple(faults)))
    return steps


def _draw_kinds(chance: random.Random) -> Iterator[tuple[FaultKind, tuple[float, float]]]:
    while True:
        yield from chance.sample(ROUND, len(ROUND))
