"""Models with these columns."""

from typing import Any

from django.db import models

from tests.columns.fields import EnumField, LabelPathField, LevelField, ReversedField, SafeTextField, Shade, ZoneField


class Paint(models.Model):
    """A row of converted values."""

    shade = EnumField(max_length=1, choices=[(shade, shade.name.title()) for shade in Shade], default=Shade.RED)
    level = LevelField(null=True, blank=True)
    note = SafeTextField(blank=True)
    recipe = ReversedField(max_length=20, blank=True)
    zone = ZoneField(default="UTC")
    path = LabelPathField(max_length=80, default="top")


class Account(models.Model):
    """A row whose key is made elsewhere."""

    number = models.BigIntegerField(primary_key=True)
    balance = models.BigIntegerField(default=0)


class Payment(models.Model):
    """A row that refers to such a row."""

    account: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        Account, on_delete=models.CASCADE, null=True, related_name="payments"
    )
    amount = models.IntegerField(default=0)


class Draft(models.Model):
    """A row with methods that take no arguments, as the admin calls them."""

    slug = models.SlugField(primary_key=True)
    title = models.CharField(max_length=40, blank=True)

    def save(self) -> None:  # type: ignore[override]
        super().save()

    def delete(self) -> Any:  # type: ignore[override]
        return super().delete()


class Measurement(models.Model):
    """A row with a column of each of Django's field classes."""

    name = models.CharField(max_length=200, blank=True)
    text = models.TextField(blank=True)
    small = models.SmallIntegerField(null=True, blank=True)
    number = models.IntegerField(null=True, blank=True)
    big = models.BigIntegerField(null=True, blank=True)
    size = models.PositiveBigIntegerField(null=True, blank=True)
    price = models.DecimalField(max_digits=8, decimal_places=2, null=True, blank=True)
    weight = models.FloatField(null=True, blank=True)
    is_new = models.BooleanField(default=False)
    day = models.DateField(null=True, blank=True)
    moment = models.DateTimeField(null=True, blank=True)
    opens = models.TimeField(null=True, blank=True)
    lasts = models.DurationField(null=True, blank=True)
    key = models.UUIDField(null=True, blank=True)
    address = models.GenericIPAddressField(null=True, blank=True)
    details = models.JSONField(null=True, blank=True)
