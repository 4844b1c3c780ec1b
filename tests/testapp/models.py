"""A model with enough kinds of fields to be interesting."""

from typing import Any

from django.contrib.auth import get_user_model
from django.db import models


class Book(models.Model):
    """A book that a user may own."""

    title = models.CharField(max_length=200, unique=True)
    pages = models.PositiveIntegerField(default=0)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    published = models.DateField(null=True, blank=True)
    owner: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        get_user_model(), on_delete=models.CASCADE, null=True, blank=True, related_name="books"
    )

    class Meta:
        ordering = ["title"]

    def __str__(self) -> str:
        return self.title
