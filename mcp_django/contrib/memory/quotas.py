"""Writes for an owner: one at a time, within the quotas, with notifications to the owner's clients."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, router, transaction
from django.utils import timezone

from mcp_django import Principal, notify_resource_updated
from mcp_django.contrib.memory.models import Conversation, Entry, Fact, Owner
from mcp_django.contrib.memory.options import get_settings
from mcp_django.contrib.memory.validation import MemoryFull, is_valid_name

MAX_LOCK_ATTEMPTS = 3
"""Maximum attempts to lock an owner's row, which may be erased concurrently."""
NO_OWNER_MESSAGE = (
    "Memory requires an authenticated caller. Connect with a token; on the developer's own machine, set "
    'MCP["LOCAL_USER"] to the user to act as.'
)


class MemoryStore:
    """Base of the stores of one owner, `ConversationStore` and `FactStore`."""

    def __init__(self, owner: str | None, user: Any = None) -> None:
        """Create a store for an owner. Raises ValidationError without an owner.

        `owner` is a `Principal.owner`, or the result of `mcp_django.owner_of` for a user. `user` is the Django user, if
        any; stored data is deleted together with it.
        """
        if owner is None:
            raise ValidationError(NO_OWNER_MESSAGE)
        self.owner = owner
        self._user = user

    @classmethod
    def for_principal(cls, principal: Principal) -> Self:
        """Return the store of a principal. Raises ValidationError without an owner."""
        return cls(principal.owner, principal.user)

    @contextmanager
    def lock_for_writing(self) -> Iterator[Owner]:
        """Open a transaction in which no other process writes for this owner.

        It starts with a write, as SQLite requires, and deletes expired data first.
        """
        alias = router.db_for_write(Owner)
        with transaction.atomic(using=alias):
            rows = self._rows(alias)
            for _attempt in range(MAX_LOCK_ATTEMPTS):
                if self._lock(rows):
                    break
                self._create(rows)
            owner = rows.get()
            for model in (Conversation, Fact):
                model.objects.filter(owner=owner).expired().delete()
            yield owner

    def remove(self, model: type[Conversation | Fact], name: str) -> bool:
        """Delete the owner's row with this name permanently, and notify the owner; False if none is visible."""
        alias = router.db_for_write(Owner)
        if not is_valid_name(name):
            return False
        with transaction.atomic(using=alias):
            # Lock first, so that the row is not deleted during a write.
            if not self._lock(self._rows(alias)):
                return False
            rows: Any = model._default_manager
            gone = bool(rows.for_owner(self.owner).filter(name=name).delete()[0])
            if gone:
                notify_owner(self.owner, [model(name=name).uri])
            return gone

    def _rows(self, alias: str) -> models.QuerySet[Owner]:
        return Owner.objects.using(alias).filter(key_hash=Owner.hash_key(self.owner))

    def _lock(self, rows: models.QuerySet[Owner]) -> bool:
        pk = _get_user_pk(self._user)
        values = {"written": timezone.now(), **({} if pk is None else {"user_id": pk})}
        return bool(rows.update(**values))

    def _create(self, rows: models.QuerySet[Owner]) -> None:
        pk, users = _get_user_pk(self._user), get_user_model()._base_manager.using(rows.db)
        # A credential stays valid for some seconds after its user was deleted and erased.
        if pk is not None and not users.filter(pk=pk).exists():
            raise ValidationError(NO_OWNER_MESSAGE)
        try:
            with transaction.atomic(using=rows.db):
                rows.create(key_hash=Owner.hash_key(self.owner), key=self.owner, user_id=pk)
        except IntegrityError:
            pass  # another process created the row first; the next attempt waits for its lock


def check_quota(owner: Owner, row: Entry, max_rows: int) -> None:
    """Check the quotas of an owner, who must be locked. Raises MemoryFull.

    The owner may have `max_rows` rows of this kind and a limited number of bytes. Both are counted each time, so that
    direct changes of rows cannot corrupt the result.
    """
    options, bytes_kept = get_settings(), row.size

    # The error is for a client, so the nouns stay English.
    for model, noun in ((Conversation, "conversations"), (Fact, "facts")):
        other_rows = model.objects.filter(owner=owner)
        if isinstance(row, model) and row.pk is not None:
            other_rows = other_rows.exclude(pk=row.pk)
        totals = other_rows.aggregate(count=models.Count("pk"), size=models.Sum("size"))
        bytes_kept += totals["size"] or 0
        if isinstance(row, model) and totals["count"] >= max_rows:
            raise MemoryFull(f"At most {max_rows} {noun} can be saved. Delete some that are not needed first.")

    if bytes_kept > options.bytes_per_owner:
        raise MemoryFull(
            f"The saved data would have {bytes_kept} bytes, more than the maximum of {options.bytes_per_owner}. "
            "Delete data that is not needed, or save less."
        )


def notify_owner(owner: str, uris: Iterable[str]) -> None:
    """Notify only the clients of a `Principal.owner` of changed resources.

    Notifications are sent when the transaction commits, or at once without a transaction.
    """
    server, alias = get_settings().server, router.db_for_write(Owner)
    for uri in uris:
        notify_resource_updated(uri, owner=owner, server=server, using=alias)


def _get_user_pk(user: Any) -> Any:
    """Return the primary key of a user of this project; None for other principals."""
    return user.pk if isinstance(user, get_user_model()) else None
