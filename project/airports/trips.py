"""Trips, as tools save and describe them."""

from typing import Any

from django.db import transaction

from mcp_django import ToolError
from project.airports.forms import TripEditorForm
from project.airports.models import Airport, Stop, Trip
from project.airports.shapes import TripForm, TripInfo


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
