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
