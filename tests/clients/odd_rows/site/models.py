"""A model whose columns have values that strict clients refused.

The values are blank, naive, large, null, or of any shape.
"""

from typing import Any

from django.db import models


class Mood(models.TextChoices):
    GLAD = "glad"
    SAD = "sad"

    __empty__ = "Unknown"


class Oddity(models.Model):
    label = models.CharField(max_length=80, blank=True)
    email = models.EmailField(blank=True)
    address = models.URLField(blank=True)
    made = models.DateTimeField(null=True)
    day = models.DateField(null=True)
    opens = models.TimeField(null=True)
    takes = models.DurationField(null=True)
    key = models.UUIDField()
    host = models.GenericIPAddressField(null=True)
    large = models.BigIntegerField()
    price = models.DecimalField(max_digits=20, decimal_places=4)
    ratio = models.FloatField(null=True)
    is_open = models.BooleanField(null=True)
    mood = models.CharField(max_length=4, choices=Mood.choices, null=True, blank=True)  # noqa: DJ001
    level = models.IntegerField(choices=[(1, "low"), (2, "high")], null=True)
    data = models.JSONField(null=True)
    content = models.BinaryField()
    picture = models.FileField(blank=True)
    parent: "models.ForeignKey[Any, Any]" = models.ForeignKey("self", on_delete=models.CASCADE, null=True)
    friends: "models.ManyToManyField[Any, Any]" = models.ManyToManyField("self")

    class Meta:
        app_label = "site"
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.label
