"""Lesson 5: apps, the pages that clients show with the result of a tool. Clients without apps show the text."""

from mcp_django import Context, ToolError, ToolResult, tool
from mcp_django.contrib.apps import app, form_tool, render_result
from project.airports.forms import TripEditorForm, read_initial
from project.airports.geodesy import Box
from project.airports.mcp_tools.functions import READ_ONLY
from project.airports.models import Airport, Trip
from project.airports.shapes import AirportCells, Latitude, Longitude, TripInfo
from project.airports.trips import describe_trip, replace_trip

MAP_ROWS = 80
"""Cells of the map from south to north."""


# The tools of lesson 1 with `ui="airport_map"` show this page. It is a template without a user.
app("airport_map", template="airports/map.html", title="Airports on a map")
app("trip_editor", template="airports/trip_editor.html", title="Trip editor")


# Clients offer this tool to the map, and not to the model.
@tool(permission="airports.view_airport", annotations=READ_ONLY, visibility=["app"])
def airport_cells(south: Latitude, north: Latitude, west: Longitude, east: Longitude) -> AirportCells:
    """List the cells of a map that have airports. `west` is greater than `east` across the antimeridian."""
    return AirportCells.of(Airport.objects.within(Box(south, north, west, east)), (north - south) / MAP_ROWS)


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
