"""Rows that are others whenever something changed that processes keep: by them, processes know whether it still holds.

One is for stored prompts and resources, one for the rules of `ToolPolicy` and `ScopeGrant`.
"""

import secrets

from django.db import models
from django.utils.translation import gettext_lazy as _

from mcp_django.models.managers import PrimaryManager

STORED, RULES = 1, 2
"""The primary keys of the rows."""


class StoredStateQuerySet(models.QuerySet["StoredState"]):
    """Reading and changing a mark: that of what is stored, or that of the rules."""

    def mark(self, of: int = STORED) -> str:
        """What is there now; "" before anything was ever saved."""
        return self.filter(pk=of).values_list("token", flat=True).first() or ""

    def touch(self, of: int = STORED) -> None:
        """Something changes, in the transaction that this is called in. Whoever changes something else waits for its
        end, so that a mark and what it stands for become visible together.
        """
        # Random: a number that is counted up again after a rollback would stand for something else.
        token = secrets.token_hex(16)
        if self.filter(pk=of).update(token=token) == 0:
            self.bulk_create([StoredState(pk=of)], ignore_conflicts=True)
            self.filter(pk=of).update(token=token)


class StoredState(models.Model):
    """A mark."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    token = models.CharField(_("mark"), max_length=32, default="")

    objects = PrimaryManager.from_queryset(StoredStateQuerySet)()

    class Meta:
        verbose_name = _("state of what is stored")
        verbose_name_plural = _("states of what is stored")
        default_permissions = ()

    def __str__(self) -> str:
        return self.token
