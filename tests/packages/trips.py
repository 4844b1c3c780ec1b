"""Trips, whose columns have the field classes of other packages, as a toolset that reads and writes them."""

from typing import Any

from asgiref.sync import async_to_sync

from mcp_django import ModelToolset
from tests.orm.writing import as_user, get_field_errors, get_result, user
from tests.packages.models import Trip
from tests.server.client import PipelineClient


class Trips(ModelToolset):
    model = Trip
    fields = [
        *("name", "price", "price_currency", "deposit", "deposit_currency", "country", "stops", "extras", "shade"),
        *("level", "phone", "zone", "tags", "rooms", "repeats", "guides"),
    ]
    list_filter = "__all__"
    tools = ("describe", "list", "get", "create", "update", "delete")


class TripColumn:
    """One column of a trip, as a client reads and writes it."""

    def __init__(self, name: str, *toolsets: type[ModelToolset]) -> None:
        self.name = name
        self.client: PipelineClient = as_user(user(), Trips, *toolsets)
        self.pk = self.create()["pk"]

    def create(self, **values: Any) -> dict[str, Any]:
        """Create a trip, and return its row."""
        needed = {"name": "Alps", "price": "7.25", "country": "CH"}
        item: dict[str, Any] = get_result(self.client, "trip_create", values={**needed, **values})["item"]
        return item

    def get_schema(self) -> dict[str, Any]:
        """Return the schema of a value to write."""
        listed = async_to_sync(self.client.request)("tools/list")["tools"]
        tool = next(one for one in listed if one["name"] == "trip_update")
        schema: dict[str, Any] = tool["inputSchema"]["properties"]["values"]["properties"][self.name]
        return schema

    def update(self, value: Any) -> Any:
        """Write a value, and return the one that the row then shows."""
        values = {self.name: value}
        return get_result(self.client, "trip_update", pk=self.pk, values=values)["item"][self.name]

    def get_problem(self, value: Any) -> str:
        """Write a value that the form refuses, and return the text."""
        errors = get_field_errors(self.client, "trip_update", pk=self.pk, values={self.name: value})
        assert list(errors) == [self.name]
        return errors[self.name][0]

    def count(self, value: Any, lookup: str = "") -> int:
        """Return the number of trips that a filter finds."""
        filters = {f"{self.name}__{lookup}" if lookup else self.name: value}
        return len(get_result(self.client, "trip_list", filters=filters)["items"])
