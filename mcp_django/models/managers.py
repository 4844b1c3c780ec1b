"""The manager of rows that are asked for right after they were written."""

from typing import TypeVar

from django.db import models, router

M = TypeVar("M", bound=models.Model, covariant=True)


class PrimaryManager(models.Manager[M]):
    """Reads from the database it writes to: a replica that lags would not know a session or token made just now."""

    def get_queryset(self) -> models.QuerySet[M]:
        queryset = super().get_queryset()
        return queryset if self._db else queryset.using(router.db_for_write(self.model))
