"""Waits of a call in the form that its row keeps: offsets from the start of the call, as JSON."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from mcp_django.contrib.control_room.models import NAME_CHARACTERS
from mcp_django.extensions.calls import CallRecord, jsonrpc, sanitize_label
from mcp_django.server.calls.outcome import Wait, is_question

MAX_DECIMALS = 3
"""Decimals of milliseconds that rows keep."""


@dataclass(frozen=True, slots=True)
class RecordedWait:
    """Wait of a call, with offsets from its start in milliseconds."""

    cause: str
    """Cause, as in `CallRecord.waits_for`."""
    start: float
    end: float
    key: str = ""
    """Name of the question, if the settings allow it."""
    is_open: bool = False
    """True if the call ended before the wait did: with a question, or because it was cancelled."""

    @property
    def is_question(self) -> bool:
        """Return True for a request to the client."""
        return is_question(self.cause)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Waits of a call."""

    waits: tuple[RecordedWait, ...] = ()
    hidden: int = 0
    """Number of later waits that were not kept."""

    @property
    def waited_milliseconds(self) -> float:
        """Time in which the call waited. Waits at the same time count once."""
        total = reached = 0.0
        for wait in sorted(self.waits, key=lambda wait: wait.start):
            total += max(wait.end - max(wait.start, reached), 0.0)
            reached = max(reached, wait.end)
        return total

    def encode(self) -> str:
        """Return the waits as JSON; an empty text without any."""
        if not self.waits:
            return ""
        rows = [[wait.cause, wait.start, wait.end, wait.key, wait.is_open] for wait in self.waits]
        return json.dumps({"waits": rows, "hidden": self.hidden}, separators=(",", ":"))


def build_timeline(record: CallRecord, started_at: float, seconds: float, questions: Collection[str]) -> Timeline:
    """Return the waits of a call that took `seconds`. `questions` are the names of questions to keep."""
    if not record.waits:
        return _NO_WAITS
    waits = _build_waits(record.waits, started_at, seconds, questions)
    return Timeline(tuple(waits), record.wait_count - len(record.waits))


def decode_timeline(text: str) -> Timeline:
    """Return the waits of a row. Damaged JSON has none."""
    try:
        raw = jsonrpc.loads_exactly(text) if text else {}
        return Timeline(tuple(map(_decode_wait, raw["waits"])), int(raw["hidden"]))
    except (ValueError, TypeError, LookupError):
        return _NO_WAITS


def _decode_wait(row: Any) -> RecordedWait:
    return RecordedWait(str(row[0]), float(row[1]), float(row[2]), str(row[3]), bool(row[4]))


def _build_waits(
    waits: Iterable[Wait], started_at: float, seconds: float, questions: Collection[str]
) -> Iterable[RecordedWait]:
    for wait in waits:
        start = min(max(wait.start - started_at, 0.0), seconds)
        end = seconds if wait.end is None else min(max(wait.end - started_at, start), seconds)
        key = sanitize_label(wait.key)[:NAME_CHARACTERS] if wait.key is not None and wait.key in questions else ""
        cause = sanitize_label(wait.cause)[:NAME_CHARACTERS]
        yield RecordedWait(
            cause, round(start * 1000, MAX_DECIMALS), round(end * 1000, MAX_DECIMALS), key, wait.end is None
        )


_NO_WAITS = Timeline()
