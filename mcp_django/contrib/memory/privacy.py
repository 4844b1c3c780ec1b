"""Export and erasure of a user's stored data."""

from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.db import models, router, transaction
from django.utils import timezone

from mcp_django import owner_of
from mcp_django.contrib.memory.models import Conversation, Fact, Owner
from mcp_django.contrib.memory.quotas import notify_owner


class ErasureCounts(NamedTuple):
    """Numbers of erased rows."""

    conversations: int
    facts: int


def find_owners(user: Any) -> models.QuerySet[Owner]:
    """Return the owners that belong to a user: one for each issuer of credentials.

    Empty for an anonymous user.
    """
    key = owner_of(user)
    if key is None:
        return Owner.objects.none()
    return Owner.objects.filter(models.Q(user=user.pk) | models.Q(key_hash=Owner.hash_key(key))).order_by("pk")


def find_owners_by_key(key: str) -> models.QuerySet[Owner]:
    """Return the owner with this `Principal.owner`, for callers without an account."""
    return Owner.objects.filter(key_hash=Owner.hash_key(key))


def export_user(user: Any) -> dict[str, Any]:
    """Export the stored data of a user as JSON values, including expired rows."""
    return {"user": user.get_username(), "owners": export_owners(find_owners(user))}


def export_owners(owners: models.QuerySet[Owner]) -> list[dict[str, Any]]:
    """Export the stored data of these owners as JSON values."""
    return [
        {
            "owner": owner.key,
            "created": owner.created.isoformat(),
            "conversations": [
                {
                    **_export_common(row),
                    "title": row.title,
                    "metadata": row.metadata,
                    "messages": row.messages,
                }
                for row in Conversation.objects.filter(owner=owner).order_by("pk")
            ],
            "facts": [
                {**_export_common(row), "text": row.text, "category": row.category}
                for row in Fact.objects.filter(owner=owner).order_by("pk")
            ],
        }
        for owner in owners
    ]


def _export_common(row: Conversation | Fact) -> dict[str, Any]:
    return {
        "id": row.name,
        "tags": row.tag_list,
        "created": row.created.isoformat(),
        "updated": row.updated.isoformat(),
        "expires": None if row.expires is None else row.expires.isoformat(),
    }


def erase_user(user: Any) -> ErasureCounts:
    """Erase the stored data of a user permanently, and notify the user's clients."""
    return erase_owners(find_owners(user))


def erase_owners(owners: models.QuerySet[Owner], *, announce: bool = True) -> ErasureCounts:
    """Erase these owners with all their data permanently.

    With `announce`, their clients are notified when the transaction commits.
    """
    conversations = facts = 0
    alias = router.db_for_write(Owner)
    with transaction.atomic(using=alias):
        # Wait for concurrent writes for these owners. Later writes find no owner.
        owners.order_by().update(written=timezone.now())
        for owner in list(owners):
            names = list(Conversation.objects.filter(owner=owner).values_list("name", flat=True))
            _, counts = owner.delete()
            conversations += counts.get(Conversation._meta.label, 0)
            facts += counts.get(Fact._meta.label, 0)
            if announce:
                notify_owner(owner.key, [Fact.uri, *(Conversation(name=name).uri for name in names)])
    return ErasureCounts(conversations, facts)


def erase_on_user_delete(*, instance: Any, **kwargs: Any) -> None:
    """Erase the data of a user before the user is deleted (`pre_delete`).

    This covers data under the user's key without a link to the user's row. It runs first and under the lock, so that
    concurrent writes cannot make the deletion fail.
    """
    if isinstance(instance, get_user_model()):
        erase_owners(find_owners(instance), announce=False)
