"""What has expired is shown to nobody. Here it is deleted, for owners who do not write: a write would do it."""

from typing import NamedTuple

from django.db import router, transaction
from django.utils import timezone

from mcp_django.contrib.memory.models import Conversation, Fact, Owner

SLICE = 500


class Expired(NamedTuple):
    """How much was deleted."""

    conversations: int
    facts: int
    owners: int


def expire(*, slice: int = SLICE) -> Expired:
    """Delete what has expired, and the owners of whom nothing is left; `slice` rows in a transaction at most."""
    return Expired(_purge(Conversation, slice), _purge(Fact, slice), _forget_owners(slice))


def _purge(model: type[Conversation] | type[Fact], slice: int) -> int:
    deleted = 0
    while keys := list(model.objects.all().expired().order_by("pk").values_list("pk", flat=True)[:slice]):
        # Asked again in the statement: it may have been saved, and so renewed, meanwhile.
        gone, _ = model.objects.filter(pk__in=keys).expired().delete()
        deleted += gone
    return deleted


def _forget_owners(slice: int) -> int:
    """An owner's key is about somebody too."""
    forgotten, last = 0, 0
    alias = router.db_for_write(Owner)
    empty = Owner.objects.filter(conversations=None, facts=None).order_by("pk")
    while keys := list(empty.filter(pk__gt=last).values_list("pk", flat=True)[:slice]):
        last = keys[-1]
        for pk in keys:
            with transaction.atomic(using=alias):
                # Locked as writers lock it: who writes now has either written, or begins a new one.
                if Owner.objects.filter(pk=pk).update(written=timezone.now()) and empty.filter(pk=pk).exists():
                    forgotten += Owner.objects.filter(pk=pk).delete()[0]
    return forgotten
