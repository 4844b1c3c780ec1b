"""Lesson 1: functions as tools, which a model may call.

A client sees the name of the function, its docstring as the description, the parameters as the input schema, and the
return annotation as the output schema. The server fills in a parameter of type `Context`, which no schema shows.

`async def` functions use the async ORM. `def` functions run in a thread and use the ordinary one.
"""

from typing import Annotated

from django.db.models import Avg, Count, Prefetch, Q
from pydantic import Field

from mcp_django import Context, tool
from project.airports.lookup import find_country
from project.airports.models import Airport, Stop, Trip
from project.airports.shapes import AirportInfo, CountryStatistics, Latitude, Longitude, NearbyAirport, TripInfo

READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
"""Clients may run such a tool without asking their user."""


@tool(annotations=READ_ONLY, ui="airport_map")
async def search_airports(
    query: Annotated[str, Field(min_length=2, max_length=80)],
    country: str | None = None,
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
) -> list[AirportInfo]:
    """Find airports by code, name or city, the best match first.

    Args:
        query: An IATA or ICAO code, or words from the name or city; accents do not matter.
        country: Only in this country: an ISO code or English name, such as CH or Switzerland.
        limit: At most so many airports.
    """
    airports = Airport.objects.search(query).select_related("country", "region")
    if country is not None:
        airports = airports.filter(country=await find_country(country))
    return [AirportInfo.of(airport) async for airport in airports[:limit]]


# A tool without `permission` is for every caller of the server. This one exists only for users with the permission.
@tool(permission="airports.view_airport", annotations=READ_ONLY, timeout=10, ui="airport_map")
def nearest_airports(
    latitude: Latitude, longitude: Longitude, limit: Annotated[int, Field(ge=1, le=50)] = 5
) -> list[NearbyAirport]:
    """Find the airports nearest to a point, by great-circle distance.

    Args:
        latitude: Degrees north, negative in the south.
        longitude: Degrees east, negative in the west.
        limit: At most so many airports.
    """
    nearest = Airport.objects.nearest(latitude, longitude, limit)
    return [NearbyAirport(AirportInfo.of(airport), round(distance, 1)) for airport, distance in nearest]


@tool(annotations=READ_ONLY)
async def country_statistics(country: str) -> CountryStatistics:
    """Count and compare the airports of a country.

    Args:
        country: An ISO code or English name, such as NP or Nepal.
    """
    place = await find_country(country)
    numbers = await place.airports.aaggregate(
        airports=Count("pk"),
        airports_with_iata_code=Count("pk", filter=~Q(iata="")),
        time_zones=Count("timezone", filter=~Q(timezone=""), distinct=True),
        mean_elevation_ft=Avg("elevation"),
    )
    highest = await place.airports.select_related("country", "region").order_by("-elevation", "icao").afirst()
    regions = place.regions.annotate(airport_count=Count("airports")).filter(airport_count__gt=0)
    return CountryStatistics(
        country=place.name,
        highest=AirportInfo.of(highest) if highest else None,
        airports_by_region={region.name: region.airport_count async for region in regions.order_by("-airport_count")},
        **numbers,
    )


@tool(permission="airports.view_trip", annotations=READ_ONLY)
def list_trips(ctx: Context) -> list[TripInfo]:
    """List the trips that the user has saved, the newest first."""
    trips = Trip.objects.filter(owner=ctx.user).select_related("origin", "destination")
    return [
        TripInfo.of(trip) for trip in trips.prefetch_related(Prefetch("stops", Stop.objects.select_related("airport")))
    ]
