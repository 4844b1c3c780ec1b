"""Versions of cached data: processes compare them to detect stale caches.

One row is for stored prompts and resources, and one for the rules of `ToolPolicy` and `ScopeGrant`. Each change of the
data changes the row.
"""

import secrets
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager

M = TypeVar("M", bound=models.Model, covariant=True)
STORED_PK, RULES_PK = 1, 2
"""Primary keys of the rows."""


class StoredStateQuerySet(models.QuerySet["StoredState"]):
    """Query set that reads and changes a version."""

    def get_version(self, pk: int = STORED_PK) -> str:
        """Return the current version; "" before the first save."""
        return self.filter(pk=pk).values_list("token", flat=True).first() or ""

    def change_version(self, pk: int = STORED_PK) -> None:
        """Change the version in the surrounding transaction.

        Concurrent changes wait for the end of the transaction. Therefore the new version and the changed data become
        visible together.
        """
        # Random: a counter could repeat a value after a rollback, for different data.
        token = secrets.token_hex(16)
        if self.filter(pk=pk).update(token=token) == 0:
            self.bulk_create([StoredState(pk=pk)], ignore_conflicts=True)
            self.filter(pk=pk).update(token=token)


class StoredState(models.Model):
    """Current version of one kind of cached data."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    token = models.CharField(_("mark"), max_length=32, default="")

    objects = PrimaryManager.from_queryset(StoredStateQuerySet)()

    class Meta:
        verbose_name = _("state of what is stored")
        verbose_name_plural = _("states of what is stored")
        default_permissions = ()

    def __str__(self) -> str:
        return self.token


class VersionedQuerySet(models.QuerySet[M]):
    """Query set of rows that processes cache.

    Bulk operations send no signals, but change the cache version. They send no notifications to clients.
    """

    version_pk: ClassVar[int] = STORED_PK

    def update(self, **kwargs: Any) -> int:
        self._for_write = True
        with transaction.atomic(using=self.db, savepoint=False):
            changed = super().update(**kwargs)
            StoredState.objects.using(self.db).change_version(self.version_pk)
        return changed

    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        self._for_write = True
        with transaction.atomic(using=self.db, savepoint=False):
            made = super().bulk_create(objs, *args, **kwargs)
            StoredState.objects.using(self.db).change_version(self.version_pk)
        return made
