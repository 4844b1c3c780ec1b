"""Rows that atomic tools write."""

from django.db import models


class Booking(models.Model):
    """One row for each committed run of an atomic tool."""

    number = models.IntegerField()
    run = models.CharField(max_length=32)

    def __str__(self) -> str:
        return f"{self.number} {self.run}"
