"""Parts that the models share: the manager, the link to a user, digests, and versions of cached rows.

Processes compare a version to detect a stale cache. One version is for stored prompts and resources, and one for the
rules of `ToolPolicy` and `ScopeGrant`. Each change of the data changes the version.
"""

import hashlib
import secrets
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from django.conf import settings
from django.db import models, router, transaction
from django.utils.translation import gettext_lazy as _

M = TypeVar("M", bound=models.Model, covariant=True)
STORED_PK, RULES_PK = 1, 2
"""Primary keys of the rows with the two versions."""


class PrimaryManager(models.Manager[M]):
    """Manager that reads from the database it writes to.

    A lagging replica would miss a session or token that was just created.
    """

    def get_queryset(self) -> models.QuerySet[M]:
        queryset = super().get_queryset()
        return queryset if self._db else queryset.using(router.db_for_write(self.model))


def create_user_key(**options: Any) -> "models.ForeignKey[Any, Any]":
    """Return a foreign key to the user model, whose rows are deleted with the user."""
    defaults = {"verbose_name": _("user"), "on_delete": models.CASCADE, "related_name": "+"}
    return models.ForeignKey(settings.AUTH_USER_MODEL, **{**defaults, **options})


def hash_text(text: str) -> str:
    """Return the digest that a row stores instead of a secret, or of a text too long for an index."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
        verbose_name = _("cache version")
        verbose_name_plural = _("cache versions")
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
