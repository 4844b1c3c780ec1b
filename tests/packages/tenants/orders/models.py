"""Rows in the schema of each tenant."""

from django.db import models


class Order(models.Model):
    """An order of a tenant's shop."""

    reference = models.CharField(max_length=20)

    def __str__(self) -> str:
        return self.reference
