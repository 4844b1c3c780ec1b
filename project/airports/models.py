"""Airports of the world with their countries and regions, and the trips that users plan between them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Case, Q, Value, When

from project.airports.geodesy import HALF_WAY_ROUND_KM, box_around, distance_km
from project.airports.text import fold

if TYPE_CHECKING:
    from project.airports.geodesy import Box


class Country(models.Model):
    """A country of ISO 3166-1, and Kosovo, which the airport data knows as XK."""

    code = models.CharField(max_length=2, primary_key=True, help_text="ISO 3166-1 alpha-2, such as CH.")
    alpha_3 = models.CharField("alpha-3 code", max_length=3, help_text="ISO 3166-1 alpha-3, such as CHE.")
    name = models.CharField(max_length=100)
    official_name = models.CharField(max_length=200, blank=True)
    flag = models.CharField(max_length=8, blank=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "countries"

    def __str__(self) -> str:
        return self.name


class Region(models.Model):
    """A first-level or deeper subdivision of a country, from ISO 3166-2."""

    code = models.CharField(max_length=6, primary_key=True, help_text="ISO 3166-2, such as CH-ZH.")
    name = models.CharField(max_length=100)
    type = models.CharField(max_length=64, help_text="What the country calls it: canton, state, prefecture…")
    country = models.ForeignKey(Country, on_delete=models.CASCADE, related_name="regions")

    class Meta:
        ordering = ["code"]

    def __str__(self) -> str:
        return f"{self.name} ({self.code})"


class AirportQuerySet(models.QuerySet["Airport"]):
    """Questions about airports."""

    def with_code(self, code: str) -> AirportQuerySet:
        """Airports whose ICAO or IATA code is `code`, the ICAO match first."""
        code = code.strip().upper()
        rank = Case(When(icao=code, then=Value(0)), default=Value(1))
        return self.filter(Q(icao=code) | Q(iata=code)).order_by(rank, "icao")

    def search(self, text: str) -> AirportQuerySet:
        """Airports matching every word of `text`, in code, name or city, accents ignored; the best match first.

        An airport of exactly that code leads, then those with scheduled-traffic (IATA) codes, larger fields as a rule.
        """
        code = text.strip().upper()
        rank = Case(
            When(Q(iata=code) | Q(icao=code), then=Value(0)),
            When(Q(city__iexact=text.strip()) & ~Q(iata=""), then=Value(1)),
            When(~Q(iata=""), then=Value(2)),
            default=Value(3),
        )
        return self.matching(text).order_by(rank, "name", "icao")

    def matching(self, text: str) -> AirportQuerySet:
        """Airports with every word of `text` in code, name or city, accents ignored."""
        return self.filter(*(Q(search_text__contains=word) for word in fold(text).split()))

    def within(self, box: Box) -> AirportQuerySet:
        """Airports inside a box, which may lie across the antimeridian."""
        rows = self.filter(latitude__range=(box.south, box.north))
        if box.west <= box.east:
            return rows.filter(longitude__range=(box.west, box.east))
        return rows.filter(Q(longitude__gte=box.west) | Q(longitude__lte=box.east))

    def nearest(
        self, latitude: float, longitude: float, limit: int = 5, *, within_km: float = HALF_WAY_ROUND_KM
    ) -> list[tuple[Airport, float]]:
        """Return up to `limit` airports and their distances in km, nearest first, none farther than `within_km`.

        The database narrows to a box around a growing circle, and exact distances are taken inside it; the answer is
        complete once the circle, not merely its box, holds enough. Two or three small queries do for most points.
        """
        radius = min(50.0, within_km)
        while True:
            rows = self.within(box_around(latitude, longitude, radius)).values_list("pk", "latitude", "longitude")
            measured = ((distance_km(latitude, longitude, lat, lon), pk) for pk, lat, lon in rows)
            found = sorted(pair for pair in measured if pair[0] <= radius)[:limit]
            if len(found) == limit or radius >= within_km:
                airports = self.select_related("country", "region").in_bulk([pk for _, pk in found])
                return [(airports[pk], distance) for distance, pk in found]
            radius = min(radius * 3, within_km)

    async def anearest(
        self, latitude: float, longitude: float, limit: int = 5, *, within_km: float = HALF_WAY_ROUND_KM
    ) -> list[tuple[Airport, float]]:
        """Return the result of `nearest`, for async code."""
        return await sync_to_async(self.nearest)(latitude, longitude, limit, within_km=within_km)


class Airport(models.Model):
    """An airport or landing strip. Small fields without an ICAO code go by their national one, as in the source."""

    icao = models.CharField("ICAO code", max_length=4, primary_key=True)
    iata = models.CharField("IATA code", max_length=3, blank=True, db_index=True)
    name = models.CharField(max_length=100)
    city = models.CharField(max_length=64, blank=True)
    country = models.ForeignKey(Country, on_delete=models.PROTECT, related_name="airports")
    region = models.ForeignKey(Region, on_delete=models.SET_NULL, null=True, blank=True, related_name="airports")
    subdivision = models.CharField(max_length=64, blank=True, help_text="The region's name as the source spells it.")
    latitude = models.FloatField(validators=[MinValueValidator(-90), MaxValueValidator(90)], help_text="Degrees north.")
    longitude = models.FloatField(
        validators=[MinValueValidator(-180), MaxValueValidator(180)], help_text="Degrees east."
    )
    elevation = models.IntegerField(help_text="Feet above mean sea level.")
    timezone = models.CharField("time zone", max_length=40, blank=True)
    search_text = models.TextField(editable=False, help_text="Codes, name and city in plain letters.")

    objects = AirportQuerySet.as_manager()

    class Meta:
        ordering = ["icao"]
        indexes = [models.Index(fields=["latitude", "longitude"], name="airport_position")]

    def __str__(self) -> str:
        return f"{self.name} ({self.code})"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Keep the search text in step with the fields it is made of."""
        self.search_text = self.make_search_text()
        super().save(*args, **kwargs)

    @property
    def code(self) -> str:
        """The code travellers know: IATA where there is one."""
        return self.iata or self.icao

    def make_search_text(self) -> str:
        """Return codes, name and city in plain letters."""
        return fold(f"{self.iata} {self.icao} {self.name} {self.city}")

    def distance_to(self, other: Airport) -> float:
        """Return the great-circle distance to another airport in km."""
        return distance_km(self.latitude, self.longitude, other.latitude, other.longitude)


class Trip(models.Model):
    """A trip of one user, from an airport to another, by way of its stops."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    origin = models.ForeignKey(Airport, on_delete=models.PROTECT, related_name="+")
    destination = models.ForeignKey(Airport, on_delete=models.PROTECT, related_name="+")
    depart_on = models.DateField("departure", null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created", "-pk"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="trip_name_once_per_owner")]

    def __str__(self) -> str:
        return self.name

    @property
    def route(self) -> list[Airport]:
        """The airports of the trip in order."""
        return [self.origin, *(stop.airport for stop in self.stops.all()), self.destination]

    @property
    def length_km(self) -> float:
        """The sum of the great-circle distances of all legs, in km."""
        return sum((here.distance_to(there) for here, there in pairwise(self.route)), start=0.0)


class Stop(models.Model):
    """An airport where a trip touches down on its way."""

    trip = models.ForeignKey(Trip, on_delete=models.CASCADE, related_name="stops")
    position = models.PositiveSmallIntegerField()
    airport = models.ForeignKey(Airport, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["trip", "position"], name="stop_position_once_per_trip")]

    def __str__(self) -> str:
        return str(self.airport)
