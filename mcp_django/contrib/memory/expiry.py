"""Deletion of expired conversations and facts.

Expired data is never shown. Each write deletes the expired data of its owner; this module covers owners who do not
write.
"""

from typing import NamedTuple

from django.db import router, transaction
from django.utils import timezone

from mcp_django.contrib.memory.models import Conversation, Fact, Owner

BATCH_ROWS = 500


class ExpiryCounts(NamedTuple):
    """Numbers of deleted rows."""

    conversations: int
    facts: int
    owners: int


def expire(*, slice: int = BATCH_ROWS) -> ExpiryCounts:
    """Delete expired data and empty owners, at most `slice` rows per transaction."""
    return ExpiryCounts(_delete_expired(Conversation, slice), _delete_expired(Fact, slice), _delete_empty_owners(slice))


def _delete_expired(model: type[Conversation] | type[Fact], slice: int) -> int:
    deleted = 0

    while keys := list(model.objects.all().expired().order_by("pk").values_list("pk", flat=True)[:slice]):
        # Checked again in the statement: the row may have been saved since, and so renewed.
        count, _ = model.objects.filter(pk__in=keys).expired().delete()
        deleted += count
    return deleted


def _delete_empty_owners(slice: int) -> int:
    """Delete owners without data: the key of an owner is personal data too."""
    deleted, last = 0, 0
    alias = router.db_for_write(Owner)
    empty = Owner.objects.filter(conversations=None, facts=None).order_by("pk")
    while keys := list(empty.filter(pk__gt=last).values_list("pk", flat=True)[:slice]):
        last = keys[-1]
        for pk in keys:
            with transaction.atomic(using=alias):
                # Locked like a write: a concurrent write has either finished, or will create a new owner.
                if Owner.objects.filter(pk=pk).update(written=timezone.now()) and empty.filter(pk=pk).exists():
                    deleted += Owner.objects.filter(pk=pk).delete()[0]
    return deleted
