"""Expiry of sessions: record their use, end unused sessions, later delete their rows."""

from collections.abc import Collection
from datetime import timedelta

from django.utils import timezone

from mcp_django.models import Session

EXPIRY_INTERVAL_SECONDS = 60.0
"""Seconds between two runs."""
MAX_BATCH_ROWS, MAX_BATCHES = 200, 5
MAX_OPENED_BETWEEN_RUNS = MAX_BATCH_ROWS * MAX_BATCHES // 2
"""Number of opened sessions that triggers an early run: half of its capacity."""
ENDED_RETENTION = timedelta(days=1)
"""Time for which ended sessions are kept for the admin."""
MAX_ENDED_SESSIONS = 10_000
"""Maximum number of ended sessions to keep, to limit the database size."""


def touch_session(key_hash: str, *, min_interval: float) -> bool:
    """Record the use of a session, at most once per interval; return False unless it is live."""
    row = Session.objects.filter(key_hash=key_hash, terminated_at=None)
    return bool(row.touch(min_interval=min_interval)) or row.exists()


def expire_sessions(busy_hashes: Collection[str], *, max_idle_seconds: float, touch_interval: float) -> None:
    """End expired sessions and delete old ones, at most a thousand of each.

    `busy_hashes` are the key hashes of sessions in use.
    """
    if busy_hashes:
        Session.objects.filter(key_hash__in=busy_hashes).touch(min_interval=touch_interval)

    ended_before = timezone.now() - ENDED_RETENTION
    ended = Session.objects.ended().order_by("-terminated_at").values_list("terminated_at", flat=True)
    ended_before = max([ended_before, *filter(None, ended[MAX_ENDED_SESSIONS - 1 : MAX_ENDED_SESSIONS])])

    for _slice in range(MAX_BATCHES):
        expired_count = Session.objects.end_expired(
            idle=max_idle_seconds, busy_hashes=busy_hashes, limit=MAX_BATCH_ROWS
        )
        deleted_count = Session.objects.ended(before=ended_before).purge(limit=MAX_BATCH_ROWS)
        if max(expired_count, deleted_count) < MAX_BATCH_ROWS:
            break
