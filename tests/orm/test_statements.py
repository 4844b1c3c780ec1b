"""Number and time of the SQL statements of a call."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import Context, ModelToolset
from mcp_django.orm.queries.visibility import MAX_RELATED_ROWS, limit_statement_time
from mcp_django.protocol.errors import ToolError
from tests.orm.toolsets import Categories, Products, Tags, data, peer
from tests.server.client import PipelineClient
from tests.shop.models import Category, Product, Tag
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
on_postgres = pytest.mark.skipif(connection.vendor != "postgresql", reason="statement timeouts are PostgreSQL's")


class Scoped(Categories):
    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).exclude(slug="none")


class Everything(Products):
    fields = [*Products.fields, "category__parent__name"]
    tools = ["describe", "list", "get", "count", "aggregate"]
    list_select_related = ["category"]


class Columns(ModelToolset):
    model = Product
    fields = ["name", "category", "category__name", "supplier", "price", "status"]
    list_filter = "__all__"
    search_fields = ["name"]
    tools = ["describe", "list", "get", "count", "aggregate"]


@pytest.fixture
def rows(db: Any) -> None:
    categories = [Category.objects.create(slug=f"c{n}", name=f"C{n}") for n in range(5)]
    tags = [Tag.objects.create(name=f"t{n}") for n in range(3)]
    for number in range(30):
        Product.objects.create(name=f"P{number}", category=categories[number % 5]).tags.set(tags)


def statements(client: PipelineClient, tool: str, **arguments: Any) -> list[str]:
    """The statements of a call on tables of the project."""
    with CaptureQueriesContext(connection) as captured:
        async_to_sync(data)(client, tool, **arguments)
    return [query["sql"] for query in captured if "shop_" in query["sql"]]


CALLS = [
    ("product_describe", {}, 0),
    ("product_list", {"limit": 30}, 1),
    ("product_list", {"limit": 3, "with_total": True, "filters": {"category__name__startswith": "C"}}, 2),
    ("product_list", {"search": "P", "order_by": ["-category__name", "name"]}, 1),
    ("product_count", {"filters": {"not": {"category": "c1"}}}, 1),
    ("product_aggregate", {"group_by": ["category", "status"]}, 1),
]


def test_a_call_on_columns_takes_two_statements_at_most(rows: None, subtests: pytest.Subtests) -> None:
    for tool, arguments, wanted in CALLS:
        for categories in (Categories, Scoped):
            with subtests.test(tool=tool, arguments=arguments, wanted=wanted, categories=categories), rolled_back():
                client = peer(categories, Columns)
                assert len(statements(client, tool, **arguments)) == wanted
                assert len(statements(client, tool, **arguments)) == wanted, "the same when everything is compiled"


def test_relations_and_computed_fields_cost_the_same_for_any_number_of_rows(
    rows: None, subtests: pytest.Subtests
) -> None:
    for limit in (1, 30):
        with subtests.test(limit=limit), rolled_back():
            client = peer(Categories, Tags, Everything)
            assert len(statements(client, "product_list", limit=limit)) == 2, "the rows, and their tags"


def test_one_row_is_one_statement_of_the_shown_columns(rows: None) -> None:
    client = peer(Categories, Columns)
    product = Product.objects.all()[0]
    assert len(statements(client, "product_get", pk=product.pk)) == 1

    (sql,) = statements(peer(Categories, Columns), "product_list", fields=["name"])
    assert "secret_token" not in sql
    assert "price" not in sql
    assert "category" not in sql


async def test_too_many_related_rows_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch, rows: None) -> None:
    monkeypatch.setattr("mcp_django.orm.queries.serialize.MAX_RELATED_ROWS", 10)
    client = peer(Categories, Tags, Everything)
    message = await client.error("product_list", limit=5)
    assert message == "tags: more than 10 related rows on this page; request fewer rows, or other fields"
    assert len((await data(client, "product_list", limit=3))["items"]) == 3
    assert MAX_RELATED_ROWS == 2000


async def test_cached_selections_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch, rows: None) -> None:
    monkeypatch.setattr("mcp_django.orm.queries.serialize.MAX_CACHED_PLANS", 3)
    client = peer(Categories, Columns)
    exposure = client.server.registry.toolsets[1].exposure
    for name in (*Columns.fields, "pk"):
        assert set((await data(client, "product_list", fields=[name], limit=1))["items"][0]) == {"pk", name}
    assert len(exposure.cache) == 3


@on_postgres
def test_a_statement_that_takes_too_long_is_cancelled_with_an_error() -> None:
    class Ctx:
        cancelled = False

    with (
        pytest.raises(ToolError, match=r"took longer than 0\.05 seconds; narrow it down"),
        limit_statement_time(Ctx(), "default", 0.05),  # type: ignore[arg-type]
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT pg_sleep(5)")
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone()[0] == "0"


@on_postgres
def test_the_previous_statement_timeout_is_restored() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '7s'")
        with limit_statement_time(object(), "default", 1):  # type: ignore[arg-type]
            cursor.execute("SHOW statement_timeout")
            assert cursor.fetchone()[0] == "1s"
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone()[0] == "7s"


@on_postgres
async def test_a_slow_list_is_a_tool_error(rows: None) -> None:
    class Slow(ModelToolset):
        model = Product
        fields = ["name"]
        query_timeout = 0.05

        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).extra(where=["(SELECT pg_sleep(5)) IS NOT NULL"])

    client = peer(Slow)
    for tool in ("product_list", "product_count"):
        assert "took longer than 0.05 seconds" in await client.error(tool)


def test_without_a_limit_nothing_is_set(rows: None) -> None:
    class Unbounded(Columns):
        query_timeout = None

    with CaptureQueriesContext(connection) as captured:
        async_to_sync(data)(peer(Categories, Unbounded), "product_count")
    assert len(captured) == 1
