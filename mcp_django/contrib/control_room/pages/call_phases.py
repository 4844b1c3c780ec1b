"""Phases of a recorded call: its own code, its waits and its answer, as a table with bars."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.control_room.models import CallLogEntry, OutcomeChoices
from mcp_django.contrib.control_room.pages.running_calls import describe_wait
from mcp_django.contrib.control_room.recording.timeline import RecordedWait, decode_timeline
from mcp_django.server.calls.outcome import THREAD

MAX_BAR_UNITS = 1000
"""Width of the bar of a whole call, in units of the picture."""
MIN_BAR_UNITS = 6.0
MIN_GAP_MILLISECONDS = 0.05
"""Minimum time between two waits that counts as a phase of the call's own code."""


@dataclass(frozen=True, slots=True)
class CallPhase:
    """Phase of a call, with offsets from its start in milliseconds."""

    name: str
    """Name of the style: `own`, `thread`, `remote`, `question` or `event`."""
    label: Any
    start: float
    end: float
    total: float
    """Duration of the call."""

    @property
    def milliseconds(self) -> float | None:
        """Duration of the phase; None for an event."""
        return None if self.name == "event" else self.end - self.start

    @property
    def x(self) -> str:
        """Left end of the bar."""
        return f"{min(MAX_BAR_UNITS * self.start / self.total, MAX_BAR_UNITS - self._width):.1f}"

    @property
    def width(self) -> str:
        """Width of the bar."""
        return f"{self._width:.1f}"

    @property
    def _width(self) -> float:
        return max(MAX_BAR_UNITS * (self.end - self.start) / self.total, MIN_BAR_UNITS)


@dataclass(frozen=True, slots=True)
class CallPhases:
    """Phases of a call in the order of their start."""

    rows: list[CallPhase]
    hidden: int
    """Number of waits that the row does not have."""
    is_complete: bool
    """False for a row of before waits were recorded."""


def build_phases(entry: CallLogEntry) -> CallPhases:
    """Return the phases of a recorded call."""
    timeline = decode_timeline(entry.timeline)
    total = max(entry.milliseconds, 0.001)
    waits = sorted(timeline.waits, key=lambda wait: (wait.start, wait.end))
    is_open = entry.outcome == OutcomeChoices.INPUT_REQUIRED
    rows = [
        CallPhase("event", _("Received"), 0.0, 0.0, total),
        *_iter_phases(waits, total, has_gaps=not timeline.hidden),
        CallPhase("event", _("Ended the round") if is_open else _("Ended"), total, total, total),
    ]
    return CallPhases(rows, timeline.hidden, entry.waited_milliseconds is not None)


def _iter_phases(waits: Iterable[RecordedWait], total: float, *, has_gaps: bool) -> Iterator[CallPhase]:
    reached = 0.0
    for wait in waits:
        if wait.start - reached >= MIN_GAP_MILLISECONDS:
            yield CallPhase("own", _("Ran its own code"), reached, wait.start, total)
        yield CallPhase(_name_wait(wait), _describe(wait), wait.start, wait.end, total)
        reached = max(reached, wait.end)
    if total - reached >= MIN_GAP_MILLISECONDS and (has_gaps or not reached):
        yield CallPhase("own", _("Ran its own code"), reached, total, total)


def _name_wait(wait: RecordedWait) -> str:
    if wait.is_question:
        return "question"
    return "thread" if wait.cause == THREAD else "remote"


def _describe(wait: RecordedWait) -> Any:
    values = {"cause": describe_wait(wait.cause), "name": wait.key}
    if wait.key:
        text = _("Asked for: %(cause)s (%(name)s)") if wait.is_question else _("Waited for: %(cause)s (%(name)s)")
    else:
        text = _("Asked for: %(cause)s") if wait.is_question else _("Waited for: %(cause)s")
    return text % values
