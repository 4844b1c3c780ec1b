"""Models of the measured data.

They import only Django, because the environment of the peer imports them, too.
"""

from django.db import models


class Country(models.Model):
    """A country."""

    objects: "models.Manager[Country]" = models.Manager()

    code = models.CharField(max_length=2, primary_key=True)
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class Airport(models.Model):
    """An airport, with a field of each common kind."""

    objects: "models.Manager[Airport]" = models.Manager()

    code = models.CharField(max_length=4, unique=True)
    name = models.CharField(max_length=100)
    city = models.CharField(max_length=64, blank=True)
    country = models.ForeignKey(Country, on_delete=models.PROTECT, related_name="airports")
    kind = models.CharField(max_length=8, choices=[("large", "Large"), ("small", "Small")])
    latitude = models.FloatField()
    longitude = models.FloatField()
    elevation = models.IntegerField(null=True)
    opened = models.DateField(null=True)
    changed = models.DateTimeField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.name
