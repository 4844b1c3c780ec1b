"""What the demo serves to MCP clients. Read this file first.

An installed app's `mcp_tools.py` is imported at startup, and what it declares is served at /mcp. Everything a client
sees comes from the functions: names, descriptions from docstrings, input schemas from parameters, output schemas from
return annotations. A parameter of type `Context` is filled in by the server and stays out of the schema.

`async def` handlers use the async ORM. `def` handlers run in a thread and use the ordinary one.
"""

import asyncio
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal

from asgiref.sync import sync_to_async
from django.db import transaction
from django.db.models import Avg, Count, Prefetch, Q
from pydantic import Field

from mcp_django import (
    Context,
    ModelInline,
    ModelToolset,
    ToolError,
    ToolResult,
    completion,
    prompt,
    publish_changes,
    register,
    resource,
    tool,
)
from mcp_django.contrib.apps import app, form_tool, render_result
from mcp_django.types import TaskOptions
from project.airports.forms import TripEditorForm, read_initial
from project.airports.geodesy import Box
from project.airports.models import Airport, AirportQuerySet, Country, Region, Stop, Trip
from project.airports.shapes import (
    AirportCells,
    AirportInfo,
    ContinentSurvey,
    CountryStatistics,
    NearbyAirport,
    Neighbour,
    Survey,
    TripForm,
    TripInfo,
    TripPlan,
)

READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
"""Clients may run such a tool without asking their user."""

Latitude = Annotated[float, Field(ge=-90, le=90)]
Longitude = Annotated[float, Field(ge=-180, le=180)]
MAP_ROWS = 80
"""Cells of the map from south to north."""


# Tools: what a model may call.


# Clients with apps show this page with the result; others show the text. It is a template without a user.
app("airport_map", template="airports/map.html", title="Airports on a map")


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


# Without `permission`, whoever may reach the server may call. With it, the tool exists for users who hold that Django
# permission; to others it is as unknown as a tool that was never written.
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


# Clients offer this tool to the map, and not to the model.
@tool(permission="airports.view_airport", annotations=READ_ONLY, visibility=["app"])
def airport_cells(south: Latitude, north: Latitude, west: Longitude, east: Longitude) -> AirportCells:
    """List the cells of a map that have airports. `west` is greater than `east` across the antimeridian."""
    return AirportCells.of(Airport.objects.within(Box(south, north, west, east)), (north - south) / MAP_ROWS)


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


# A long job: clients with tasks get an id at once, and may come back for the result after a restart of the server.
# What is wrapped in `run_once` is kept with the task, so the second run, after the answer, does not repeat it.
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

    # A question goes to the person, not to the model. With clients of the newest protocol revision nothing waits: the
    # call ends here, and when the answer comes the function runs again from its first line. So ask first, write last.
    question = f"A trip {codes}. What shall it be called, and when does it start?"
    form = (await ctx.elicit(question, TripForm, key="trip")).data
    if form is None:
        return TripPlan("Nothing was saved: the user gave no details.")
    sure = await ctx.elicit(f"Save {form.name!r}, {codes}, on {form.depart_on}?", bool, key="confirm")
    if not sure.data:
        return TripPlan("Nothing was saved: the user did not confirm.")

    trip = await sync_to_async(save_trip)(ctx.user, form, route)
    return TripPlan(f"Saved {trip.name!r}.", trip)


app("trip_editor", template="airports/trip_editor.html", title="Trip editor")


@tool(permission="airports.add_trip", scopes=["airports:plan"], annotations=READ_ONLY, ui="trip_editor")
def edit_trip(ctx: Context, name: str = "") -> ToolResult:
    """Open an editor in which the user changes a saved trip, or plans one. Clients without apps get the trip as text.

    Args:
        name: Name of the saved trip; empty for a new one.
    """
    if not name:
        text = "The editor is open for a new trip. Clients without apps use plan_trip."
        return render_result("airports/trip_form.html", {"form": TripEditorForm()}, text=text)
    trip = Trip.objects.filter(owner=ctx.user, name=name).select_related("origin", "destination").first()
    if trip is None:
        raise ToolError(f"The user has no trip called {name!r}; list_trips lists their names.")
    info = TripInfo.of(trip)
    text = (
        f"The editor is open for {describe_trip(info)}. Its id is {trip.pk}. Clients without apps use trip_update to "
        "change it."
    )
    return render_result("airports/trip_form.html", {"form": TripEditorForm(read_initial(trip))}, text=text)


# The form is the schema of the arguments, and validates them. Its errors return to the fields of the page.
@form_tool(TripEditorForm, visibility=["app"], permission="airports.add_trip", scopes=["airports:plan"])
def store_trip(form: TripEditorForm, ctx: Context) -> ToolResult:
    """Save a trip as the user, or change the one of this name."""
    if ctx.user is None:
        raise ToolError("A trip belongs to a user; log in first.")
    info = TripInfo.of(replace_trip(ctx.user, form))
    return render_result("airports/trip_saved.html", {"trip": info}, text=f"The user saved {describe_trip(info)}.")


@tool(permission="airports.view_trip", annotations=READ_ONLY)
def list_trips(ctx: Context) -> list[TripInfo]:
    """List the trips that the user has saved, the newest first."""
    trips = Trip.objects.filter(owner=ctx.user).select_related("origin", "destination")
    return [
        TripInfo.of(trip) for trip in trips.prefetch_related(Prefetch("stops", Stop.objects.select_related("airport")))
    ]


# Models: what a client may ask of their rows, declared as one declares a ModelAdmin. `airport_list` filters, searches,
# orders and pages, `airport_aggregate` groups and sums up; `airports.airport://LSZH` is a row. All of it takes Django's
# permission to view the model, and nothing is shown or compared that is not named here.


@register(Country)
class Countries(ModelToolset):
    """Countries of ISO 3166-1."""

    fields = ["code", "alpha_3", "name", "official_name", "flag"]
    search_fields = ["=code", "=alpha_3", "name", "official_name"]
    list_filter = ["name", "alpha_3"]
    ordering = ["code"]
    label_field = "name"


@register(Region)
class Regions(ModelToolset):
    """Cantons, states, prefectures: the parts of countries, by ISO 3166-2."""

    fields = ["code", "name", "type", "country"]
    search_fields = ["=code", "name"]
    list_filter = ["name", "type", "country", "country__name"]
    label_field = "name"


@register(Airport)
class Airports(ModelToolset):
    """Airports and landing strips. Elevations are feet, coordinates degrees north and east."""

    fields = ["icao", "iata", "name", "city", "country", "region", "latitude", "longitude", "elevation", "timezone"]
    search_fields = ["name", "city", "iata", "icao"]
    list_filter = [
        *("iata", "name", "city", "country", "region", "latitude", "longitude", "elevation", "timezone"),
        *("country__name", "region__name", "region__type"),
    ]
    label_field = "name"
    tools = ["describe", "list", "get", "count", "aggregate"]
    # Clients with apps show a table, a card and a chart.
    app = True

    def get_search_results(self, ctx: Context, queryset: Any, search_term: str) -> AirportQuerySet:
        """Search as the site does: every word, accents ignored."""
        rows: AirportQuerySet = queryset
        return rows.matching(search_term)


class Stops(ModelInline):
    """Where a trip touches down on its way."""

    model = Stop
    fields = ["position", "airport"]
    ordering = ["position"]


# Writing is asked for by name, takes the permission to add, change or delete, and goes through a ModelForm.
@register(Trip)
class Trips(ModelToolset):
    """The trips that the user has saved."""

    fields = ["name", "origin", "destination", "depart_on", "created"]
    inlines = [Stops]
    tools = ["describe", "list", "get", "count", "create", "update", "delete"]
    confirm = ["delete"]
    # A table, a card, and forms in which the user adds and changes trips.
    app = True
    search_fields = ["name", "origin__name", "destination__name"]
    list_filter = ["origin", "destination", "depart_on", "origin__country", "destination__country"]
    ordering = ["-pk"]

    def get_queryset(self, ctx: Context) -> Any:
        """Those of who asks: whatever a client says, other people's are not there."""
        return super().get_queryset(ctx).filter(owner=ctx.user)

    def save_model(self, ctx: Context, obj: Trip, form: Any, change: bool) -> None:
        """The owner is who asks, never what a client says."""
        if ctx.user is None:
            raise ToolError("A trip belongs to a user; log in first.")
        obj.owner = ctx.user
        obj.save()


# Resources: what a client may read, by URI. A dict is served as JSON.


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
    """Where an airport can be read: by either code."""
    return [f"airport://{code}" for code in (airport.iata, airport.icao) if code]


# Who subscribed to an airport is told when it is saved or deleted, in the admin for example.
publish_changes(Airport, uris_of, "airports://countries", list_changed=False)


# Prompts: what a user may pick to begin a conversation.


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


# Completions: what a client offers while the user types an argument.


@completion("plan_trip", "origin")
@completion("plan_trip", "destination")
@completion("airport://{code}", "code")
async def complete_code(value: str) -> list[str]:
    """Codes that begin with what was typed, or whose city does."""
    airports = Airport.objects.filter(Q(iata__istartswith=value) | Q(city__istartswith=value)).exclude(iata="")
    return [code async for code in airports.order_by("iata").values_list("iata", flat=True)[:100]]


# Ordinary functions that the handlers share. A ToolError's text is meant for the model: what is wrong, and what to do.


async def find_country(text: str) -> Country:
    """Return the country with this code or name, or tell the model what to give instead."""
    named = Q(code__iexact=text) | Q(alpha_3__iexact=text) | Q(name__iexact=text)
    country = await Country.objects.filter(named).afirst()
    if country is None:
        raise ToolError(f"No country is called {text!r}; give its ISO code or English name, such as CH or Switzerland.")
    return country


async def find_airport(code: str) -> Airport:
    """Return the airport with this code, or tell the model how to find one."""
    airport = await Airport.objects.with_code(code).select_related("country", "region").afirst()
    if airport is None:
        raise ToolError(f"No airport has the code {code!r}; search_airports finds codes by name or city.")
    return airport


def save_trip(owner: Any, form: TripForm, route: list[Airport]) -> TripInfo:
    """Save a trip with its stops, or return the equal one saved before: a client whose answer got lost asks again."""
    first, *between, last = route
    with transaction.atomic():
        values = {"origin": first, "destination": last, "depart_on": form.depart_on}
        trip, created = Trip.objects.get_or_create(owner=owner, name=form.name, defaults=values)
        if created:
            Stop.objects.bulk_create(Stop(trip=trip, position=n, airport=a) for n, a in enumerate(between, start=1))
        elif trip.route != route or trip.depart_on != form.depart_on:
            raise ToolError(f"There is another trip called {form.name!r}; plan again and choose a different name.")
    return TripInfo.of(trip)


def replace_trip(owner: Any, form: TripEditorForm) -> Trip:
    """Save the trip of a form with its stops. Without the permission to change trips, refuse a name that is taken."""
    first, *between, last = form.route
    values = {"origin": first, "destination": last, "depart_on": form.cleaned_data["depart_on"]}
    with transaction.atomic():
        trip, created = Trip.objects.update_or_create(owner=owner, name=form.cleaned_data["name"], defaults=values)
        if not created and not owner.has_perm("airports.change_trip"):
            raise ToolError(f"There is another trip called {trip.name!r}; choose a different name.")
        trip.stops.all().delete()
        Stop.objects.bulk_create(Stop(trip=trip, position=n, airport=a) for n, a in enumerate(between, start=1))
    return trip


def describe_trip(trip: TripInfo) -> str:
    """Describe a trip in a line."""
    return f"{trip.name!r}: {' → '.join(trip.route)}, {trip.length_km} km, departure {trip.depart_on or 'open'}"
