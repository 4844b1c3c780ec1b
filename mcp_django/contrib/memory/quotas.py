"""Who writes for an owner: one at a time, and within the quotas."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, router, transaction
from django.utils import timezone

from mcp_django import Principal
from mcp_django.contrib.memory.models import Conversation, Entry, Fact, Owner
from mcp_django.contrib.memory.options import get_settings
from mcp_django.contrib.memory.validation import MemoryFull, is_name

ATTEMPTS = 3
"""Tries for an owner's row, which may be erased at the same time."""
NOBODY = (
    "Memory belongs to somebody, and nobody is logged in here. Connect with a token; on the developer's own machine, "
    'MCP["LOCAL_USER"] names the user to act as.'
)


class Keeper:
    """The memory of one owner; `Conversations` and `Facts` say what is in it."""

    def __init__(self, owner: str | None, user: Any = None) -> None:
        """`owner` is a `Principal.owner`, or what `mcp_django.owner_of` says of a user. `user` is the Django user, if
        there is one: with it goes what is kept. Raises ValidationError for nobody.
        """
        if owner is None:
            raise ValidationError(NOBODY)
        self.owner = owner
        self._user = user

    @classmethod
    def for_principal(cls, principal: Principal) -> Self:
        """The memory of who calls. Raises ValidationError for nobody."""
        return cls(principal.owner, principal.user)

    @contextmanager
    def writing(self) -> Iterator[Owner]:
        """A transaction in which nobody else writes for this owner, begun with a write as SQLite wants it. What has
        expired is gone in it.
        """
        alias = router.db_for_write(Owner)
        with transaction.atomic(using=alias):
            rows = self._rows(alias)
            for _attempt in range(ATTEMPTS):
                if self._lock(rows):
                    break
                self._begin(rows)
            owner = rows.get()
            for model in (Conversation, Fact):
                model.objects.filter(owner=owner).expired().delete()
            yield owner

    def remove(self, model: type[Entry], name: str) -> bool:
        """Delete the owner's row of that name for good. False when there is none to be seen."""
        alias = router.db_for_write(Owner)
        if not is_name(name):
            return False
        with transaction.atomic(using=alias):
            # First, so that it is not deleted while it is being written.
            if not self._lock(self._rows(alias)):
                return False
            rows: Any = model._default_manager
            return bool(rows.of(self.owner).filter(name=name).delete()[0])

    def _rows(self, alias: str) -> models.QuerySet[Owner]:
        return Owner.objects.using(alias).filter(key_hash=Owner.hash(self.owner))

    def _lock(self, rows: models.QuerySet[Owner]) -> bool:
        pk = _pk_of(self._user)
        said = {"written": timezone.now(), **({} if pk is None else {"user_id": pk})}
        return bool(rows.update(**said))

    def _begin(self, rows: models.QuerySet[Owner]) -> None:
        pk, users = _pk_of(self._user), get_user_model()._base_manager.using(rows.db)
        # A credential is trusted for some seconds after its user was deleted, and erased.
        if pk is not None and not users.filter(pk=pk).exists():
            raise ValidationError(NOBODY)
        try:
            with transaction.atomic(using=rows.db):
                rows.create(key_hash=Owner.hash(self.owner), key=self.owner, user_id=pk)
        except IntegrityError:
            pass  # somebody else was first, and is waited for at the next try


def claim(owner: Owner, row: Entry, most: int) -> None:
    """Refuse what would be too much for the owner, who is locked: more than `most` rows of this kind, or too many
    bytes. Counted anew each time, so that nothing that happens to rows spoils it. Raises MemoryFull.
    """
    options, bytes_kept = get_settings(), row.size
    for model in (Conversation, Fact):
        others = model.objects.filter(owner=owner)
        if isinstance(row, model) and row.pk is not None:
            others = others.exclude(pk=row.pk)
        found = others.aggregate(count=models.Count("pk"), size=models.Sum("size"))
        bytes_kept += found["size"] or 0
        if isinstance(row, model) and found["count"] >= most:
            raise MemoryFull(
                f"No more than {most} {model._meta.verbose_name_plural} may be kept. Delete what is not needed first."
            )
    if bytes_kept > options.bytes_per_owner:
        raise MemoryFull(
            f"All that is kept may have {options.bytes_per_owner} bytes, and would have {bytes_kept}. "
            "Delete what is not needed, or save less."
        )


def _pk_of(user: Any) -> Any:
    """The primary key of a user of this project; None for nobody, and for the people of other systems."""
    return user.pk if isinstance(user, get_user_model()) else None
