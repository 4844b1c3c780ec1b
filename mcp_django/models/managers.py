"""Manager for rows that are read right after they were written."""

from typing import TypeVar

from django.db import models, router

M = TypeVar("M", bound=models.Model, covariant=True)


class PrimaryManager(models.Manager[M]):
    """Manager that reads from the database it writes to.

    A lagging replica would miss a session or token that was just created.
    """

    def get_queryset(self) -> models.QuerySet[M]:
        queryset = super().get_queryset()
        return queryset if self._db else queryset.using(router.db_for_write(self.model))
