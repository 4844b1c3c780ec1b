"""Models with columns and relations of other packages. They have no migrations: their tables are made for the tests."""

from enum import Enum
from typing import Any

from django.db import models
from django_countries.fields import CountryField
from django_jsonform.models.fields import JSONField
from djmoney.models.fields import MoneyField
from enumfields import EnumField, EnumIntegerField
from multiselectfield import MultiSelectField
from phonenumber_field.modelfields import PhoneNumberField
from recurrence.fields import RecurrenceField
from taggit.managers import TaggableManager
from timezone_field import TimeZoneField

from tests.packages.pages import Story
from tests.packages.restricted_models import Site, Ticket
from tests.packages.rooms import Guest, Room
from tests.packages.tree_models import Category, Chapter, Region, SortedCategory

__all__ = [
    "Category",
    "Chapter",
    "Engagement",
    "Guest",
    "Guide",
    "Region",
    "Room",
    "Site",
    "SortedCategory",
    "Story",
    "Ticket",
    "Trip",
]


class Shade(Enum):
    RED = "r"
    BLUE = "b"


class Level(Enum):
    EASY = 1
    HARD = 2


class Guide(models.Model):
    """A leader of trips."""

    name = models.CharField(max_length=40)


class Trip(models.Model):
    """A journey with columns of other packages."""

    name = models.CharField(max_length=40)
    price = MoneyField(max_digits=10, decimal_places=2, default_currency="CHF")
    deposit = MoneyField(max_digits=10, decimal_places=2, default_currency="CHF", null=True, blank=True)
    country = CountryField()
    stops = CountryField(multiple=True, blank=True)
    extras = MultiSelectField(max_length=20, choices=[("bus", "Bus"), ("hut", "Hut"), ("ski", "Ski")], blank=True)
    shade = EnumField(Shade, max_length=1, default=Shade.RED)
    level = EnumIntegerField(Level, default=Level.EASY)
    phone = PhoneNumberField(blank=True)
    zone = TimeZoneField(default="Europe/Zurich")
    tags = TaggableManager(blank=True)
    rooms = JSONField(schema={"type": "list", "items": {"type": "string"}}, default=list, blank=True)
    repeats = RecurrenceField(blank=True)
    guides: "models.ManyToManyField[Any, Any]" = models.ManyToManyField(Guide, through="Engagement", blank=True)


class Engagement(models.Model):
    """A guide of a trip, with a fee that has a default."""

    trip: "models.ForeignKey[Any, Any]" = models.ForeignKey(Trip, on_delete=models.CASCADE)
    guide: "models.ForeignKey[Any, Any]" = models.ForeignKey(Guide, on_delete=models.CASCADE)
    fee = models.IntegerField(default=100)
