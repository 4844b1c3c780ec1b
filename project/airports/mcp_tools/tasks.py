"""Lesson 4: calls that take time. They report progress, become tasks, or wait for the user's answer."""

import asyncio
from functools import partial
from typing import Annotated, Literal

from asgiref.sync import sync_to_async
from pydantic import Field

from mcp_django import Context, ToolError, tool
from mcp_django.types import TaskOptions
from project.airports.lookup import find_airport, find_country
from project.airports.mcp_tools.functions import READ_ONLY
from project.airports.models import Airport
from project.airports.shapes import ContinentSurvey, Neighbour, Survey, TripForm, TripPlan
from project.airports.trips import save_trip


@tool(annotations=READ_ONLY, timeout=120)
async def survey_country(country: str, ctx: Context, limit: Annotated[int, Field(ge=1, le=1000)] = 200) -> Survey:
    """Find a country's most isolated airports: those farthest from any other. Slow; it reports its progress.

    Args:
        country: An ISO code or English name, such as NZ or New Zealand.
        limit: Survey at most so many airports, in the order of their codes.
    """
    place = await find_country(country)
    airports = [airport async for airport in place.airports.order_by("icao")[:limit]]
    found: list[Neighbour] = []
    for done, airport in enumerate(airports, start=1):
        others = Airport.objects.exclude(pk=airport.pk)
        for other, distance in await others.anearest(airport.latitude, airport.longitude, limit=1):
            found.append(Neighbour(str(airport), str(other), round(distance, 1)))
        await ctx.report_progress(done, len(airports), f"Measured {airport.name}")
    found.sort(key=lambda neighbour: -neighbour.distance_km)
    mean = sum(neighbour.distance_km for neighbour in found) / len(found) if found else None
    return Survey(country=place.name, surveyed=len(airports), mean_distance_km=mean, most_isolated=found[:5])


# Clients with tasks get an id at once, and may fetch the result after a restart of the server. The task keeps the
# results of `run_once`, so the second run, after the answer, does not repeat that work.
@tool(task=TaskOptions(grace=0), annotations=READ_ONLY, timeout=900)
async def survey_continent(
    continent: Literal["Africa", "America", "Asia", "Australia", "Europe"],
    ctx: Context,
    seconds: Annotated[float, Field(ge=0, le=600)] = 60,
) -> ContinentSurvey:
    """Count a continent's airports by time zone. Takes a minute, and asks halfway.

    Args:
        seconds: How long it takes.
    """
    airports = Airport.objects.filter(timezone__startswith=f"{continent}/")
    zones = [zone async for zone in airports.order_by("timezone").values_list("timezone", flat=True).distinct()]
    half = len(zones) // 2

    async def count(start: int, end: int) -> dict[str, int]:
        found = {}
        for done, zone in enumerate(zones[start:end], start=start + 1):
            await asyncio.sleep(seconds / len(zones))
            found[zone] = await airports.filter(timezone=zone).acount()
            await ctx.report_progress(done, len(zones), f"Counted {zone}")
        return found

    counted: dict[str, int] = await ctx.run_once("first half", partial(count, 0, half))
    question = f"{sum(counted.values())} airports in half of the time zones. Count the other half, too?"
    if (await ctx.elicit(question, bool, key="other_half")).data:
        counted = {**counted, **await ctx.run_once("second half", partial(count, half, len(zones)))}
    largest = dict(sorted(counted.items(), key=lambda entry: -entry[1])[:10])
    return ContinentSurvey(sum(counted.values()), len(counted), largest)


@tool(
    permission="airports.add_trip",
    scopes=["airports:plan"],
    annotations={"readOnlyHint": False, "destructiveHint": False},
)
async def plan_trip(origin: str, destination: str, ctx: Context, stops: list[str] | None = None) -> TripPlan:
    """Plan a trip between two airports and save it for the user, who is asked for a name and a date, and to confirm.

    Args:
        origin: IATA or ICAO code of the first airport.
        destination: IATA or ICAO code of the last airport.
        stops: Codes of the airports in between, in order.
    """
    if ctx.user is None:
        raise ToolError("A trip belongs to a user; log in first.")
    route = [await find_airport(code) for code in (origin, *(stops or ()), destination)]
    codes = " → ".join(airport.code for airport in route)

    # The user gets the question, and not the model. With clients of the newest revision the call ends here, and runs
    # again from the first line when the answer arrives. So ask first and write last.
    question = f"A trip {codes}. What shall it be called, and when does it start?"
    form = (await ctx.elicit(question, TripForm, key="trip")).data
    if form is None:
        return TripPlan("Nothing was saved: the user gave no details.")
    sure = await ctx.elicit(f"Save {form.name!r}, {codes}, on {form.depart_on}?", bool, key="confirm")
    if not sure.data:
        return TripPlan("Nothing was saved: the user did not confirm.")

    trip = await sync_to_async(save_trip)(ctx.user, form, route)
    return TripPlan(f"Saved {trip.name!r}.", trip)
