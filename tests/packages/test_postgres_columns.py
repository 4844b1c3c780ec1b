"""Columns that only PostgreSQL has: arrays, ranges, hstore, label trees, network addresses."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.postgres import fields
from django.contrib.postgres.signals import get_hstore_oids, register_type_handlers
from django.core.exceptions import ValidationError
from django.db import connection, models
from django_ltree import lookups  # noqa: F401 (as its app does)
from django_ltree.fields import PathField
from netaddr import AddrFormatError, IPNetwork
from psycopg.types.range import Range

from mcp_django.orm import register_codec
from mcp_django.orm.codecs import registry
from mcp_django.orm.package_codecs.networks import build_network_codec
from tests.orm.round_trips import build_toolset, check_round_trip
from tests.orm.toolsets import data, peer

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="columns of PostgreSQL"),
    pytest.mark.django_db,
]


class NetworkField(models.Field):
    """Networks as netaddr has them, as field classes of inventories convert them."""

    def db_type(self, connection: Any) -> str:
        return "cidr"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return self.to_python(value)

    def to_python(self, value: Any) -> Any:
        try:
            return IPNetwork(value) if value else value
        except AddrFormatError:
            raise ValidationError("Invalid address.") from None

    def get_prep_value(self, value: Any) -> Any:
        return str(self.to_python(value)) if value else None


@NetworkField.register_lookup
class NetContained(models.Lookup):
    lookup_name = "net_contained"

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        left, left_params = self.process_lhs(compiler, connection)
        right, right_params = self.process_rhs(compiler, connection)
        return f"{left} << {right}", [*left_params, *right_params]


@NetworkField.register_lookup
class MaskLength(models.Transform):
    lookup_name = "net_mask_length"
    function = "MASKLEN"
    output_field = models.IntegerField()


class Sample(models.Model):
    numbers = fields.ArrayField(models.IntegerField(), null=True, blank=True)
    days = fields.ArrayField(models.DateField(null=True, blank=True), null=True, blank=True)
    ages = fields.IntegerRangeField(null=True, blank=True)
    keys = fields.BigIntegerRangeField(null=True, blank=True)
    prices = fields.DecimalRangeField(null=True, blank=True)
    moments = fields.DateTimeRangeField(null=True, blank=True)
    trips = fields.DateRangeField(null=True, blank=True)
    labels = fields.HStoreField(null=True, blank=True)
    path = PathField(null=True, blank=True)
    network = NetworkField(null=True, blank=True)

    class Meta:
        app_label = "packages"
        managed = False


@pytest.fixture(autouse=True)
def table(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the table in the transaction of the test."""
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
    register_codec(NetworkField)(build_network_codec)
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS hstore")
        cursor.execute("CREATE EXTENSION IF NOT EXISTS ltree")
    get_hstore_oids.cache_clear()
    register_type_handlers(connection)
    with connection.schema_editor() as editor:
        editor.create_model(Sample)
    yield
    get_hstore_oids.cache_clear()


async def test_values_are_found_and_written_as_they_are_shown(subtests: pytest.Subtests) -> None:
    now = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    big = 725653563933458432
    cases: tuple[tuple[str, Any, Any], ...] = (
        ("numbers", [3, 1], [3, 1]),
        ("numbers", [], []),
        ("days", [dt.date(2026, 1, 2), None], ["2026-01-02", None]),
        ("ages", Range(1, 5), {"lower": 1, "upper": 5, "bounds": "[)"}),
        ("ages", Range(None, 5), {"lower": None, "upper": 5, "bounds": "()"}),
        ("keys", Range(1, big), {"lower": 1, "upper": str(big), "bounds": "[)"}),
        ("prices", Range(Decimal("1.50"), None), {"lower": "1.50", "upper": None, "bounds": "[)"}),
        ("trips", Range(now.date(), None), {"lower": "2026-03-01", "upper": None, "bounds": "[)"}),
        ("labels", {"a": "1", "b": None}, {"a": "1", "b": None}),
        ("path", "top.science", "top.science"),
        ("network", "10.0.0.0/8", "10.0.0.0/8"),
        ("network", "2001:db8::/32", "2001:db8::/32"),
    )
    for name, value, shown in cases:
        with subtests.test(name=name, value=value):
            assert await check_round_trip(Sample, name, value) == shown


async def test_lookups_of_the_columns_find_rows(subtests: pytest.Subtests) -> None:
    row = await Sample.objects.acreate(
        numbers=[3, 1],
        ages=Range(1, 5),
        labels={"a": "1"},
        path="top.science.physics",
        network="10.1.0.0/16",
    )
    await Sample.objects.acreate(numbers=[7], ages=Range(50, 60), labels={"z": "1"}, path="art", network="10.0.0.0/8")
    server = peer(build_toolset(Sample, "numbers", "ages", "labels", "path", "network"))
    ages = {"lower": 2, "upper": 9}
    for filters in (
        {"numbers__contains": [1]},
        {"numbers__contained_by": [1, 2, 3]},
        {"numbers__overlap": [3, 9]},
        {"numbers__len": 2},
        {"ages__contains": 4},
        {"ages__contains": {"lower": 2, "upper": 3}},
        {"ages__overlap": ages},
        {"ages__contained_by": {"lower": 0, "upper": 9}},
        {"ages__fully_lt": {"lower": 10, "upper": 11}},
        {"ages__adjacent_to": {"lower": 5, "upper": 6}},
        {"labels__contains": {"a": "1"}},
        {"labels__has_key": "a"},
        {"labels__has_any_keys": ["a", "b"]},
        {"path__descendants": "top"},
        {"path__ancestors": "top.science.physics.optics"},
        {"path__match": "*.physics"},
        {"path__in": ["top.science.physics"]},
        {"network__net_contained": "10.0.0.0/8"},
        {"network__net_mask_length": 16},
        {"network__gt": "10.0.0.0/8"},
        {"network__in": ["10.1.0.0/16"]},
    ):
        with subtests.test(filters=filters):
            found = await data(server, "row_list", filters=filters)
            assert [item["pk"] for item in found["items"]] == [row.pk]


async def test_wrong_operands_are_tool_errors(subtests: pytest.Subtests) -> None:
    server = peer(build_toolset(Sample, "numbers", "ages", "labels", "path", "network"))
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"numbers": 5}, "give a list"),
        ({"numbers__len": -1}, "give a number of items"),
        ({"ages": {"lower": 5}}, "give an object with lower, upper and bounds"),
        ({"ages": {"lower": 5, "upper": 1}}, "the upper end of a range is below its lower end"),
        ({"ages": {"lower": 1, "upper": 5, "bounds": "<>"}}, "bounds are one of"),
        ({"labels": {"a": 5}}, "give a text"),
        ({"path": "top..x"}, "give labels with dots between them"),
        ({"path__match": "top; drop"}, "give a pattern of labels"),
        ({"network": "10.0.0.300/8"}, "not an address"),
        ({"network__net_mask_length": 129}, "give an integer from 0 to 128"),
    )
    for filters, text in cases:
        with subtests.test(filters=filters):
            result = await server.call("row_list", filters=filters)
            assert result["isError"]
            assert text in result["content"][0]["text"]


async def test_a_range_is_written_with_the_bounds_of_its_column() -> None:
    row = await Sample.objects.acreate()
    server = peer(build_toolset(Sample, "prices"))
    prices = {"lower": "1.50", "upper": "2.50"}
    result = await server.call("row_update", pk=row.pk, values={"prices": {**prices, "bounds": "(]"}})
    assert "prices: A range of this field is written with the bounds [)" in result["content"][0]["text"]
    saved = await data(server, "row_update", pk=row.pk, values={"prices": prices})
    assert saved["item"]["prices"] == {**prices, "bounds": "[)"}
