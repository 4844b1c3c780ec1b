"""Lesson 3: resources, which clients read by URI, and prompts, with which users begin a conversation."""

from dataclasses import asdict
from typing import Any

from django.db.models import Count, Q

from mcp_django import completion, prompt, publish_changes, resource
from project.airports.lookup import find_airport
from project.airports.models import Airport, Country
from project.airports.shapes import AirportInfo


# A dict is served as JSON.
@resource("airports://countries", title="Countries", mime_type="application/json")
async def countries() -> dict[str, Any]:
    """All countries that have airports, with their ISO codes and numbers of airports."""
    rows = Country.objects.annotate(airport_count=Count("airports")).filter(airport_count__gt=0)
    return {"countries": [{"code": r.code, "name": r.name, "airports": r.airport_count} async for r in rows]}


@resource("airport://{code}", title="An airport", mime_type="application/json")
async def airport(code: str) -> dict[str, Any]:
    """One airport, by IATA or ICAO code."""
    return asdict(AirportInfo.of(await find_airport(code)))


def uris_of(airport: Airport) -> list[str]:
    """List the URIs of an airport, one for each code."""
    return [f"airport://{code}" for code in (airport.iata, airport.icao) if code]


# Subscribed clients get a notification when an airport is saved or deleted, in the admin for example.
publish_changes(Airport, uris_of, "airports://countries", list_changed=False)


@prompt(name="plan_trip", title="Plan a trip")
async def plan_trip_prompt(origin: str, destination: str, days: int = 7) -> str:
    """Plan a trip between two airports, with sensible stops on the way.

    Args:
        origin: IATA or ICAO code of the first airport.
        destination: IATA or ICAO code of the last airport.
        days: How long the trip may take.
    """
    start, end = await find_airport(origin), await find_airport(destination)
    return (
        f"Plan a trip of {days} days from {start} to {end}; they are {start.distance_to(end):,.0f} km apart. "
        "Look for one or two stops that break the journey well, say why they are worth it, and then save the trip."
    )


# Clients offer these values while the user types an argument.
@completion("plan_trip", "origin")
@completion("plan_trip", "destination")
@completion("airport://{code}", "code")
async def complete_code(value: str) -> list[str]:
    """List the codes that begin with a text, and those of cities that begin with it."""
    airports = Airport.objects.filter(Q(iata__istartswith=value) | Q(city__istartswith=value)).exclude(iata="")
    return [code async for code in airports.order_by("iata").values_list("iata", flat=True)[:100]]
