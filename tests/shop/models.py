"""The models of the shop: most tests publish products and orders, and none publishes suppliers."""

import uuid
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Category(models.Model):
    """A node of the catalogue."""

    slug = models.SlugField(primary_key=True)
    name = models.CharField(max_length=80)
    parent: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="children"
    )

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "categories"

    def __str__(self) -> str:
        return self.name


class Supplier(models.Model):
    """A row that no toolset shows: the supplier and the price of purchase."""

    name = models.CharField(max_length=80)
    bank_account = models.CharField(max_length=40)
    api_key = models.CharField(max_length=40, default="")

    def __str__(self) -> str:
        return self.name


class Tag(models.Model):
    """A word that products are found by."""

    name = models.CharField(max_length=40, unique=True)
    internal_note = models.CharField(max_length=100, default="")

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    """Something the shop sells."""

    class Status(models.TextChoices):
        DRAFT = "draft", _("Draft")
        ACTIVE = "active", _("Active")
        GONE = "gone", _("Gone")

    name = models.CharField(max_length=120, help_text="As on the label.")
    category: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        Category, on_delete=models.PROTECT, null=True, blank=True, related_name="products"
    )
    supplier: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        Supplier, on_delete=models.PROTECT, null=True, blank=True, related_name="products"
    )
    tags: "models.ManyToManyField[Any, Any]" = models.ManyToManyField(Tag, blank=True, related_name="products")
    price = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    cost = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    stock = models.IntegerField(default=0)
    weight = models.FloatField(null=True, blank=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.ACTIVE)
    is_new = models.BooleanField(default=False)
    description = models.TextField(blank=True)
    details = models.JSONField(default=dict, blank=True)
    manual = models.FileField(upload_to="manuals", blank=True)
    released = models.DateField(null=True, blank=True)
    opens = models.TimeField(null=True, blank=True)
    lasts = models.DurationField(null=True, blank=True)
    updated = models.DateTimeField(null=True, blank=True)
    homepage = models.URLField(blank=True)
    ip = models.GenericIPAddressField(null=True, blank=True)
    blob = models.BinaryField(null=True, blank=True)
    secret_token = models.CharField(max_length=40, default="")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return f"{self.name} ({self.secret_token})"

    @property
    def margin(self) -> float:
        """The profit of the shop."""
        return float(self.price - self.cost)

    def shout(self) -> str:
        """The name, loudly."""
        return self.name.upper()


class Order(models.Model):
    """An order; only its owner sees it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    reference = models.CharField(max_length=20)
    placed = models.DateTimeField(null=True, blank=True)
    note = models.TextField(blank=True)

    class Meta:
        ordering = ["reference"]

    def __str__(self) -> str:
        return self.reference


class Line(models.Model):
    """One product of an order."""

    order: "models.ForeignKey[Any, Any]" = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product: "models.ForeignKey[Any, Any]" = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="lines")
    quantity = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product_id}"


class Parcel(models.Model):
    """A box on its way: its columns have choices of all kinds, and defaults that the database makes."""

    class Mood(models.TextChoices):
        CALM = "calm", _("Calm")
        WILD = "wild", _("Wild")

        __empty__ = _("Unknown")

    label = models.CharField(max_length=40, unique=True)
    weight = models.PositiveIntegerField()
    mood = models.CharField(max_length=10, choices=Mood.choices, null=True, blank=True)  # noqa: DJ001
    grade = models.IntegerField(
        choices=[("Good", [(1, "First"), (2, "Second")]), ("Odd", [(1, "Odd first"), (3, "Third")])], default=1
    )
    wrap = models.CharField(max_length=10, choices=[("", "Bare"), ("box", "In a box")], blank=True)
    fee = models.DecimalField(
        max_digits=4,
        decimal_places=2,
        choices=[(Decimal("0.50"), "Half"), (Decimal("1.00"), "One")],
        default=Decimal(1),
    )
    state = models.CharField(max_length=10, db_default="new")
    rank = models.IntegerField(db_default=7, unique=True)
    made = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.label
