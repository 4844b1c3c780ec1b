"""Values of the tools: dataclasses of results and forms become schemas.

A model knows the fields of a result before it calls. A client draws the form and checks the input of the user.
"""

import datetime
from dataclasses import dataclass
from math import floor
from typing import Annotated

from django.db.models import QuerySet
from pydantic import Field

from project.airports.models import Airport, Trip

MIN_CELL_DEGREES = 0.02
Latitude = Annotated[float, Field(ge=-90, le=90)]
Longitude = Annotated[float, Field(ge=-180, le=180)]


@dataclass
class AirportInfo:
    """An airport; `icao` is always there, `iata` for the larger ones."""

    icao: str
    iata: str | None
    name: str
    city: str
    region: str | None
    country: str
    latitude: float
    longitude: float
    elevation_ft: int
    timezone: str

    @classmethod
    def of(cls, airport: Airport) -> "AirportInfo":
        """Describe a row fetched with its country and region."""
        return cls(
            icao=airport.icao,
            iata=airport.iata or None,
            name=airport.name,
            city=airport.city,
            region=airport.region.name if airport.region else airport.subdivision or None,
            country=airport.country.name,
            latitude=airport.latitude,
            longitude=airport.longitude,
            elevation_ft=airport.elevation,
            timezone=airport.timezone,
        )


@dataclass
class AirportCells:
    """South-west corners of the cells with airports; a cell is `degrees` wide and high."""

    degrees: float
    cells: list[tuple[float, float]]

    @classmethod
    def of(cls, airports: QuerySet[Airport], degrees: float) -> "AirportCells":
        """Group airports into cells."""
        degrees = max(degrees, MIN_CELL_DEGREES)
        found = {
            (floor(latitude / degrees), floor(longitude / degrees))
            for latitude, longitude in airports.values_list("latitude", "longitude")
        }
        cells = [(round(row * degrees, 3), round(column * degrees, 3)) for row, column in sorted(found)]
        return cls(degrees=degrees, cells=cells)


@dataclass
class NearbyAirport:
    """An airport and how far away it is."""

    airport: AirportInfo
    distance_km: float


@dataclass
class CountryStatistics:
    """Figures about a country's airports."""

    country: str
    airports: int
    airports_with_iata_code: int
    time_zones: int
    mean_elevation_ft: float | None
    highest: AirportInfo | None
    airports_by_region: dict[str, int]


@dataclass
class Neighbour:
    """An airport and the one nearest to it."""

    airport: str
    neighbour: str
    distance_km: float


@dataclass
class Survey:
    """How far a country's airports are from their nearest neighbours."""

    country: str
    surveyed: int
    mean_distance_km: float | None
    most_isolated: list[Neighbour]


@dataclass
class ContinentSurvey:
    """Airports of a continent by time zone."""

    airports: int
    time_zones: int
    largest: dict[str, int]


@dataclass
class TripInfo:
    """A saved trip; `route` holds the codes of its airports in order."""

    name: str
    route: list[str]
    length_km: float
    depart_on: datetime.date | None

    @classmethod
    def of(cls, trip: Trip) -> "TripInfo":
        """Describe a row; its stops are fetched unless they were prefetched."""
        return cls(
            name=trip.name,
            route=[airport.code for airport in trip.route],
            length_km=round(trip.length_km, 1),
            depart_on=trip.depart_on,
        )


@dataclass
class TripPlan:
    """The result of a plan; `trip` is set if it was saved."""

    message: str
    trip: TripInfo | None = None


@dataclass
class TripForm:
    """The questions of `plan_trip`, which clients show as a form."""

    name: Annotated[str, Field(title="Name of the trip", min_length=1, max_length=80)]
    depart_on: Annotated[datetime.date, Field(title="Departure")]
