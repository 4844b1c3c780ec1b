"""What is done about sessions that nobody uses any more: they are ended, and deleted when they have been over for a
while.
"""

from collections.abc import Collection
from datetime import timedelta

from django.utils import timezone

from mcp_django.models import Session

EVERY = 60.0
"""Seconds between two looks for expired sessions."""
SLICE, SLICES = 200, 5
AFTER = SLICE * SLICES // 2
"""Sessions opened since the last look after which it is time for the next: half of what one can delete."""
KEEP_ENDED = timedelta(days=1)
"""How long ended sessions stay to be looked at in the admin."""
MOST_ENDED = 10_000
"""How many of them, at most: whoever opens and ends sessions all day must not fill the database."""


def reap(busy: Collection[str], *, idle: float, touch_every: float) -> None:
    """End sessions that have expired and delete old ones; a thousand of each at most. Those whose key hash is in `busy`
    are in use.
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
