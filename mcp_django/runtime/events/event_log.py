"""The event log as the runtime uses it: payloads are JSON, and numbers come back with them."""

import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import OperationalError, connections

from mcp_django.models import StreamEvent
from mcp_django.models.stream_event import NewEvent
from mcp_django.protocol.jsonrpc import dumps, loads

ATTEMPTS = 10
"""Tries of an append whose transaction the database gives up for another's sake."""
GIVEN_UP = {"40001", "40P01", 1205, 1213}
"""PostgreSQL's serialization failure and deadlock (SQLSTATE), MySQL's lock wait timeout and deadlock."""


class Event(NamedTuple):
    """One entry of the log."""

    seq: int
    """Its number: without gaps, in the order of the commits."""
    topic: str
    """For whom it is: `session:<pk>`, `stream:<session pk>:<token>`, `posts:<loop>` or `changes:<server alias>`."""
    kind: str
    payload: Any
    """The decoded JSON."""


class Draft(NamedTuple):
    """An event that is not in the log yet; `payload` is whatever JSON can say."""

    topic: str
    kind: str
    payload: Any = None


class EventLog:
    """Reads and writes the log. It blocks, so it belongs on a lane."""

    def append(self, drafts: Sequence[Draft]) -> list[Event]:
        """Write these in order and return them with their numbers, which follow one another.

        One short transaction, or part of the one that surrounds it: then everybody else who appends waits for its end,
        and nobody may be told before. Raises django.db.Error when the database cannot.
        """
        if not drafts:
            return []
        new = [NewEvent(draft.topic, draft.kind, dumps(draft.payload).decode()) for draft in drafts]
        first = self._append(new)
        return [Event(seq, *draft) for seq, draft in enumerate(drafts, first)]

    def read(self, after: int, *, topic: str | None = None, most: int = 1000) -> list[Event]:
        """The first `most` events with numbers above `after`, in order; those of one topic, when it is given."""
        rows = StreamEvent.objects.filter(seq__gt=after)
        if topic is not None:
            rows = rows.filter(topic=topic)
        found = rows.order_by("seq").values_list("seq", "topic", "kind", "payload")[:most]
        return [Event(seq, name, kind, loads(payload)) for seq, name, kind, payload in found]

    def head(self) -> int:
        """The number of the latest event; 0 when there has been none."""
        return StreamEvent.objects.all().head()

    def blank(self, seqs: Sequence[int]) -> None:
        """Empty these events, whose payload nobody needs any more. They stay, because numbers have no gaps."""
        StreamEvent.objects.filter(seq__in=seqs).update(payload="null")

    def purge(self, *, seconds: float, most: int = 1000) -> int:
        """Delete events that were written more than so many seconds ago, `most` at most. Returns how many."""
        return StreamEvent.objects.all().older(seconds=seconds, most=most).delete()[0]

    def _append(self, new: Sequence[NewEvent]) -> int:
        rows, attempts = StreamEvent.objects.all(), 0
        while True:
            try:
                return rows.append(new)
            except OperationalError as problem:
                # With an isolation level above READ COMMITTED, two appends at once are one too many.
                attempts += 1
                if attempts == ATTEMPTS or not _is_given_up(problem) or connections[rows.db].in_atomic_block:
                    raise
            time.sleep(secrets.randbelow(2000 * attempts) / 1_000_000)


def _is_given_up(problem: OperationalError) -> bool:
    cause: Any = problem.__cause__
    codes = (getattr(cause, "sqlstate", None), getattr(cause, "pgcode", None), *getattr(cause, "args", ())[:1])
    return any(isinstance(code, str | int) and code in GIVEN_UP for code in codes)
