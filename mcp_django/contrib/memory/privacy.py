"""Somebody asks what is kept of them, or to be forgotten."""

from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.db import models, router, transaction
from django.utils import timezone

from mcp_django import owner_of
from mcp_django.contrib.memory.models import Conversation, Fact, Owner
from mcp_django.contrib.memory.notifications import tell


class Erased(NamedTuple):
    """How much was erased."""

    conversations: int
    facts: int


def owners_of(user: Any) -> models.QuerySet[Owner]:
    """Those whose user this is: one for each issuer that vouches for them. None for nobody."""
    key = owner_of(user)
    if key is None:
        return Owner.objects.none()
    return Owner.objects.filter(models.Q(user=user.pk) | models.Q(key_hash=Owner.hash(key))).order_by("pk")


def owners_with_key(key: str) -> models.QuerySet[Owner]:
    """The one with this `Principal.owner`, if anything is kept of it: for callers who are no users here."""
    return Owner.objects.filter(key_hash=Owner.hash(key))


def export_user(user: Any) -> dict[str, Any]:
    """All that is kept of a user, as JSON can say it. What has expired and is not deleted yet is there too."""
    return {"user": user.get_username(), "owners": export(owners_of(user))}


def export(owners: models.QuerySet[Owner]) -> list[dict[str, Any]]:
    """All that is kept of these, as JSON can say it."""
    return [
        {
            "owner": owner.key,
            "created": owner.created.isoformat(),
            "conversations": [
                {
                    **_common(row),
                    "title": row.title,
                    "metadata": row.metadata,
                    "messages": row.messages,
                }
                for row in Conversation.objects.filter(owner=owner).order_by("pk")
            ],
            "facts": [
                {**_common(row), "text": row.text, "category": row.category}
                for row in Fact.objects.filter(owner=owner).order_by("pk")
            ],
        }
        for owner in owners
    ]


def _common(row: Conversation | Fact) -> dict[str, Any]:
    return {
        "id": row.name,
        "tags": row.tag_list,
        "created": row.created.isoformat(),
        "updated": row.updated.isoformat(),
        "expires": None if row.expires is None else row.expires.isoformat(),
    }


def erase_user(user: Any) -> Erased:
    """Delete all that is kept of a user for good, and tell their clients."""
    return erase(owners_of(user))


def erase(owners: models.QuerySet[Owner], *, announce: bool = True) -> Erased:
    """Delete these with all that is kept of them for good; `announce` it to their clients when it is committed."""
    conversations = facts = 0
    alias = router.db_for_write(Owner)
    with transaction.atomic(using=alias):
        # Whoever writes for one of them is waited for, and comes too late afterwards.
        owners.order_by().update(written=timezone.now())
        for owner in list(owners):
            names = list(Conversation.objects.filter(owner=owner).values_list("name", flat=True))
            _, gone = owner.delete()
            conversations += gone.get(Conversation._meta.label, 0)
            facts += gone.get(Fact._meta.label, 0)
            if announce:
                tell(owner.key, [Fact.uri, *(Conversation(name=name).uri for name in names)])
    return Erased(conversations, facts)


def erase_with_user(*, instance: Any, **kwargs: Any) -> None:
    """A user is deleted (`pre_delete`): also what is kept under their key without a link to their row. First and under
    the lock, so that what is being written is no reason for the deletion to fail.
    """
    if isinstance(instance, get_user_model()):
        erase(owners_of(instance), announce=False)
