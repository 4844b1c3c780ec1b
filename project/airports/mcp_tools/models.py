"""Lesson 2: models, whose rows clients may ask for, declared like a ModelAdmin.

`airport_list` filters, searches, orders and pages, `airport_aggregate` groups and sums up, and
`airports.airport://LSZH` is a row. Each takes Django's permission to view the model. Clients get and compare only the
fields that are named here.
"""

from typing import Any

from mcp_django import Context, ModelInline, ModelToolset, ToolError, register
from project.airports.models import Airport, AirportQuerySet, Country, Region, Stop, Trip


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
    """The airports between the first and the last one of a trip."""

    model = Stop
    fields = ["position", "airport"]
    ordering = ["position"]


# Tools that write must be named. They take the permission to add, change or delete, and use a ModelForm.
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
        """Return the rows of the caller: those of other users do not exist for a client."""
        return super().get_queryset(ctx).filter(owner=ctx.user)

    def save_model(self, ctx: Context, obj: Trip, form: Any, change: bool) -> None:
        """Save the row for the caller; no argument can change the owner."""
        if ctx.user is None:
            raise ToolError("A trip belongs to a user; log in first.")
        obj.owner = ctx.user
        obj.save()
