"""The one table of the measured project."""

from django.db import models


class Item(models.Model):
    """A row for `lookup` to find."""

    objects: "models.Manager[Item]" = models.Manager()

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name
