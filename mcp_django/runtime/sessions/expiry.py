"""Expiry of sessions: end unused sessions, later delete their rows."""

from collections.abc import Collection
from datetime import timedelta

from django.utils import timezone

from mcp_django.models import Session

EVERY = 60.0
"""Seconds between two runs."""
SLICE, SLICES = 200, 5
AFTER = SLICE * SLICES // 2
"""Number of opened sessions that triggers an early run: half of its capacity."""
KEEP_ENDED = timedelta(days=1)
"""Time for which ended sessions are kept for the admin."""
MOST_ENDED = 10_000
"""Maximum number of ended sessions to keep, to limit the database size."""


def reap(busy: Collection[str], *, idle: float, touch_every: float) -> None:
    """End expired sessions and delete old ones, at most a thousand of each.

    `busy_hashes` are the key hashes of sessions in use.
    """
    if busy:
        Session.objects.filter(key_hash__in=busy).touch(every=touch_every)

    keep = timezone.now() - KEEP_ENDED
    ended = Session.objects.ended().order_by("-terminated_at").values_list("terminated_at", flat=True)
    keep = max([keep, *filter(None, ended[MOST_ENDED - 1 : MOST_ENDED])])

    for _slice in range(SLICES):
        reaped = Session.objects.reap(idle=idle, spare=busy, most=SLICE)
        purged = Session.objects.ended(before=keep).purge(most=SLICE)
        if max(reaped, purged) < SLICE:
            break
