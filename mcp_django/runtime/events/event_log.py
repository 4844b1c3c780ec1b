"""Event log as the runtime uses it: JSON payloads and numbered events."""

import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import OperationalError, connections

from mcp_django.models import StreamEvent
from mcp_django.models.stream_event import NewEvent
from mcp_django.protocol.jsonrpc import dumps, loads

MAX_APPEND_ATTEMPTS = 10
"""Maximum number of attempts to append when the database aborts the transaction."""
RETRYABLE_ERROR_CODES = {"40001", "40P01", 1205, 1213}
"""Error codes of aborted transactions that can be retried.

PostgreSQL's serialization failure and deadlock (SQLSTATE), MySQL's lock wait timeout and deadlock.
"""


CHANGES_TOPIC_PREFIX = "changes:"
"""Prefix of the topics of changes on servers."""


class Event(NamedTuple):
    """Entry of the log."""

    seq: int
    """Number of the event: without gaps, in commit order."""
    topic: str
    """Topic of the event.

    One of `session:<pk>`, `stream:<session pk>:<token>`, `posts:<loop>` and `changes:<server alias>`.
    """
    kind: str
    payload: Any
    """Decoded JSON."""


class EventDraft(NamedTuple):
    """Event that is not in the log yet; `payload` is any JSON value."""

    topic: str
    kind: str
    payload: Any = None


def changes_topic(alias: str) -> str:
    """Return the topic of changes on a server."""
    return f"{CHANGES_TOPIC_PREFIX}{alias}"


class EventLog:
    """Reader and writer of the log. Its methods block, so call them on a pool thread."""

    def append(self, drafts: Sequence[EventDraft]) -> list[Event]:
        """Append events in order and return them with their consecutive numbers.

        Runs in a short transaction, or as part of the surrounding one. In the latter case all other writers wait for
        the end of that transaction, and followers must not be notified before.

        Raises:
            django.db.Error: the database failed.
        """
        if not drafts:
            return []
        new_events = [NewEvent(draft.topic, draft.kind, dumps(draft.payload).decode()) for draft in drafts]
        rows, attempts = StreamEvent.objects.all(), 0
        while True:
            try:
                first = rows.append(new_events)
            except OperationalError as error:
                # Two concurrent appends conflict under an isolation level above READ COMMITTED.
                attempts += 1
                if attempts == MAX_APPEND_ATTEMPTS or not _is_retryable(error) or connections[rows.db].in_atomic_block:
                    raise
                time.sleep(secrets.randbelow(2000 * attempts) / 1_000_000)
            else:
                return [Event(seq, *draft) for seq, draft in enumerate(drafts, first)]

    def read(self, after: int, *, topic: str | None = None, limit: int = 1000) -> list[Event]:
        """Return up to `limit` events above number `after`, optionally of one topic."""
        rows = StreamEvent.objects.filter(seq__gt=after)
        if topic is not None:
            rows = rows.filter(topic=topic)
        values = rows.order_by("seq").values_list("seq", "topic", "kind", "payload")[:limit]
        return [Event(seq, name, kind, loads(payload)) for seq, name, kind, payload in values]

    def head(self) -> int:
        """Return the number of the latest event; 0 for an empty log."""
        return StreamEvent.objects.all().get_last_number()

    def clear_payloads(self, seqs: Sequence[int]) -> None:
        """Clear the payloads of consumed events.

        The rows stay, because numbers have no gaps.
        """
        StreamEvent.objects.filter(seq__in=seqs).update(payload="null")

    def delete_old(self, *, max_age_seconds: float, limit: int = 1000) -> int:
        """Delete up to `limit` events older than `max_age_seconds`; return their number."""
        return StreamEvent.objects.all().older_than(seconds=max_age_seconds, limit=limit).delete()[0]


def _is_retryable(error: OperationalError) -> bool:
    cause: Any = error.__cause__
    codes = (getattr(cause, "sqlstate", None), getattr(cause, "pgcode", None), *getattr(cause, "args", ())[:1])
    return any(isinstance(code, str | int) and code in RETRYABLE_ERROR_CODES for code in codes)
