"""Queries of a model through the toolsets, with at most two SQL statements a call."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Avg, Count, Max
from django.test.utils import CaptureQueriesContext

from mcp_django.auth.principal import DjangoPrincipal, local_principal
from mcp_django.transports.inprocess.client import InProcessClient
from mcp_django.wiring import get_server
from project.airports.models import Airport, Region, Trip

pytestmark = pytest.mark.django_db
STATEMENTS = 2


class Client:
    """A client, and its SQL statements about airports."""

    def __init__(self, principal: Any = None) -> None:
        self._caller = InProcessClient(get_server("default"), principal or local_principal())

    def call(self, tool: str, **arguments: Any) -> Any:
        """The structured result of a tool."""
        with CaptureQueriesContext(
            connection,
        ) as captured:
            result = async_to_sync(self._caller.call_tool)(tool, arguments)
        asked = [query["sql"] for query in captured if "airports_" in query["sql"]]
        assert len(asked) <= STATEMENTS, asked
        assert not result.get("isError"), result
        return result["structuredContent"]

    def written(self, tool: str, **arguments: Any) -> Any:
        """The structured result of a tool that writes."""
        result = async_to_sync(self._caller.call_tool)(tool, arguments)
        assert not result["isError"], result
        return result["structuredContent"]

    def refused(self, tool: str, **arguments: Any) -> str:
        """The text of a tool's error."""
        result = async_to_sync(self._caller.call_tool)(tool, arguments)
        assert result["isError"], result
        return str(result["content"][0]["text"])

    def read(self, uri: str) -> Any:
        """The JSON of a resource."""
        result = async_to_sync(self._caller.request)("resources/read", {"uri": uri})
        return json.loads(result["contents"][0]["text"])

    def pages(self, **arguments: Any) -> Iterator[list[Any]]:
        """The pages of a list of airports."""
        page = self.call("airport_list", **arguments)
        while page["next_cursor"] is not None:
            yield page["items"]
            page = self.call("airport_list", **arguments, cursor=page["next_cursor"])
        yield page["items"]


def test_filters_answer_which_swiss_airports_with_an_iata_code_are_the_highest() -> None:
    filters = {"country": "CH", "not": {"iata": ""}, "elevation__gte": 1500}
    found = Client().call("airport_list", filters=filters, order_by=["-elevation"], limit=3, fields=["icao"])
    rows = Airport.objects.filter(country="CH", elevation__gte=1500).exclude(iata="").order_by("-elevation")
    assert [row["icao"] for row in found["items"]] == [airport.icao for airport in rows[:3]]
    assert found["items"]


def test_a_tree_of_filters_answers_what_is_in_either_of_two_countries_and_far_enough_south() -> None:
    filters = {"or": [{"country__name__startswith": "New"}, {"country": "FJ"}], "latitude__lt": -18}
    found = Client().call("airport_count", filters=filters)
    assert found == {"count": Airport.objects.filter(country__in=["NZ", "FJ"], latitude__lt=-18).count()}
    assert found["count"] > 0


def test_joins_answer_which_airports_are_in_regions_of_a_kind() -> None:
    kind = Region.objects.filter(country="CH").values_list("type", flat=True).first()
    filters = {"region__type": kind, "country__name": "Switzerland"}
    found = Client().call("airport_list", filters=filters, with_total=True, limit=100)
    assert found["total"] == Airport.objects.filter(region__type=kind, country="CH").count() > 0
    row = found["items"][0]
    assert row["country"] == {"pk": "CH", "label": "Switzerland", "uri": "airports.country://CH"}
    assert Client().read(row["region"]["uri"])["type"] == kind


def test_aggregation_answers_how_many_airports_countries_have_and_how_high_they_are() -> None:
    metrics = [
        {"function": "count", "name": "airports"},
        {"function": "avg", "field": "elevation"},
        {"function": "max", "field": "elevation"},
    ]
    found = Client().call("airport_aggregate", group_by=["country__name"], metrics=metrics, order_by=["-airports"])
    rows = Airport.objects.values("country__name").annotate(n=Count("pk"), mean=Avg("elevation"), top=Max("elevation"))
    assert [
        (group["country__name"], group["airports"], group["avg_elevation"], group["max_elevation"])
        for group in found["groups"]
    ] == [(row["country__name"], row["n"], pytest.approx(row["mean"]), row["top"]) for row in rows.order_by("-n")]


def test_groups_can_be_filtered_by_their_metrics() -> None:
    found = Client().call(
        "airport_aggregate", group_by=["region"], filters={"country": "NZ"}, having={"count__gte": 10}
    )
    assert found["groups"]
    assert all(group["count"] >= 10 for group in found["groups"])


def test_paging_gives_every_airport_once() -> None:
    pages = list(Client().pages(filters={"country": "CH"}, order_by=["city"], limit=20, fields=["icao", "city"]))
    seen = [row["icao"] for page in pages for row in page]
    assert len(pages) > 3
    assert sorted(seen) == sorted(Airport.objects.filter(country="CH").values_list("icao", flat=True))
    cities = [row["city"] for page in pages for row in page]
    assert cities == sorted(cities)


def test_a_search_equals_that_of_the_site() -> None:
    found = Client().call("airport_list", search="zurich ZRH")
    assert [row["icao"] for row in found["items"]] == ["LSZH"]


def test_an_airport_is_a_resource_and_its_code_is_completed() -> None:
    client = Client()
    assert client.read("airports.airport://LSZH") == client.call("airport_get", pk="LSZH")
    params = {
        "ref": {"type": "ref/resource", "uri": "airports.airport://{pk}"},
        "argument": {"name": "pk", "value": "Zürich"},
    }
    offered = async_to_sync(client._caller.request)("completion/complete", params)["completion"]["values"]
    assert "LSZH" in offered


def test_trips_are_those_of_the_caller() -> None:
    ada, bob = [User.objects.create_superuser(name) for name in ("ada", "bob")]
    ends = {"origin_id": "LSZH", "destination_id": "NZAA"}
    mine = Trip.objects.create(owner=ada, name="South", **ends)
    Trip.objects.create(owner=bob, name="Secret", **ends)
    client = Client(DjangoPrincipal(issuer="tests", subject="ada", user=ada))
    found = client.call("trip_list", filters={"destination__country": "NZ"})["items"]
    assert [row["name"] for row in found] == ["South"]
    assert found[0]["origin"]["uri"] == "airports.airport://LSZH"
    assert client.call("trip_count", search="Secret") == {"count": 0}
    assert client.read(f"airports.trip://{mine.pk}")["name"] == "South"


def test_a_trip_is_written_for_the_caller_with_its_stops() -> None:
    ada, bob = [User.objects.create_superuser(name) for name in ("ada", "bob")]
    mine = Client(DjangoPrincipal(issuer="tests", subject="ada", user=ada))
    values = {"name": "South", "origin": "LSZH", "destination": "NZAA", "depart_on": "2030-05-01"}
    stops = {"stops": {"add": [{"position": 1, "airport": "NFFN"}]}}
    made = mine.written("trip_create", values=values, inlines=stops)
    trip = Trip.objects.get(pk=made["pk"])
    assert (trip.owner, [airport.icao for airport in trip.route]) == (ada, ["LSZH", "NFFN", "NZAA"])
    assert mine.written("trip_update", pk=trip.pk, values={"name": "Far south"})["changed"] == ["name"]
    assert "owner" in mine.refused("trip_update", pk=trip.pk, values={"owner": bob.pk})
    assert mine.refused("trip_create", values={**values, "name": "Far south"})
    theirs = Client(DjangoPrincipal(issuer="tests", subject="bob", user=bob))
    assert "There is no trip" in theirs.refused("trip_update", pk=trip.pk, values={"name": "Mine"})
    assert Trip.objects.get().name == "Far south"
