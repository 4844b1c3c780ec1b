"""One row that is another whenever a stored prompt or resource changed: by it, processes know what they have kept."""

import secrets

from django.db import models
from django.utils.translation import gettext_lazy as _

from .primary import PrimaryManager

ONLY = 1
"""The primary key of the row."""


class StoredStateQuerySet(models.QuerySet["StoredState"]):
    """Reading and changing the mark."""

    def mark(self) -> str:
        """What is there now; "" before anything was ever saved."""
        return self.filter(pk=ONLY).values_list("token", flat=True).first() or ""

    def touch(self) -> None:
        """Something changes, in the transaction that this is called in. Whoever changes something else waits for its
        end, so that a mark and what it stands for become visible together.
        """
        # Random: a number that is counted up again after a rollback would stand for something else.
        token = secrets.token_hex(16)
        if self.filter(pk=ONLY).update(token=token) == 0:
            self.bulk_create([StoredState(pk=ONLY)], ignore_conflicts=True)
            self.filter(pk=ONLY).update(token=token)


class StoredState(models.Model):
    """The mark."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    token = models.CharField(_("mark"), max_length=32, default="")

    objects = PrimaryManager.from_queryset(StoredStateQuerySet)()

    class Meta:
        verbose_name = _("state of what is stored")
        verbose_name_plural = _("states of what is stored")
        default_permissions = ()

    def __str__(self) -> str:
        return self.token
