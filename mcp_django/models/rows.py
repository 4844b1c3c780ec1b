"""Parts that the models share: the manager, the link to a user, and digests of keys."""

import hashlib
from typing import Any, TypeVar

from django.db import models, router
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import user_model_name

M = TypeVar("M", bound=models.Model, covariant=True)


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
    return models.ForeignKey(user_model_name(), **{**defaults, **options})


def hash_text(text: str) -> str:
    """Return the digest that a row stores instead of a secret, or of a text too long for an index."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
