"""Rounds of one operation: the calls of a conversation, in order."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.contrib.control_room.pages.running_calls import describe_wait
from mcp_django.contrib.control_room.recording.timeline import RecordedWait, decode_timeline

MAX_SHOWN_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class CallRound:
    """Call of a conversation."""

    entry: CallLogEntry
    is_shown: bool
    """True for the call whose page it is."""
    milliseconds_before: float | None
    """Time since the end of the call before it; None for the first one."""

    @property
    def questions(self) -> list[Any]:
        """Requests to the client, in words."""
        waits = decode_timeline(self.entry.timeline).waits
        return [_describe_question(wait) for wait in waits if wait.is_question]


@dataclass(frozen=True, slots=True)
class CallRounds:
    """Calls of a conversation, the first one first."""

    rows: list[CallRound]

    @property
    def has_gaps(self) -> bool:
        """Return True if rounds before the last one have no row."""
        numbers = [row.entry.round for row in self.rows if row.entry.round]
        return bool(numbers) and max(numbers) > len(set(numbers))


def _describe_question(wait: RecordedWait) -> Any:
    cause = describe_wait(wait.cause)
    return _("%(cause)s (%(name)s)") % {"cause": cause, "name": wait.key} if wait.key else cause


def load_rounds(entry: CallLogEntry, alias: str) -> CallRounds:
    """Read the rounds of a call. A call without a conversation has none."""
    if not entry.conversation:
        return CallRounds([])
    calls = CallLogEntry.objects.using(alias).filter(conversation=entry.conversation).order_by("at", "pk")
    rows: list[CallRound] = []
    ended: datetime | None = None
    for call in calls[:MAX_SHOWN_ROUNDS]:
        started = call.at - timedelta(milliseconds=call.milliseconds)
        before = None if ended is None else max((started - ended).total_seconds() * 1000, 0.0)
        rows.append(CallRound(call, call.pk == entry.pk, before))
        ended = call.at
    return CallRounds(rows)
