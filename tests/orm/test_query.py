"""Filters and searches: lookups of each type, and limits."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django import Context, ModelToolset
from tests.orm.toolsets import Categories, Products, Tags, data, peer
from tests.server.client import PipelineClient
from tests.shop.models import Category, Line, Order, Product, Tag

pytestmark = pytest.mark.django_db


@pytest.fixture
def stock(db: Any) -> None:
    drinks = Category.objects.create(slug="drinks", name="Drinks")
    tea = Product.objects.create(
        name="Green Tea",
        category=drinks,
        price=Decimal("4.50"),
        stock=3,
        weight=0.5,
        released=dt.date(2025, 5, 6),
        updated=dt.datetime(2025, 5, 6, 23, 30, tzinfo=dt.UTC),
        opens=dt.time(8),
        lasts=dt.timedelta(hours=2),
        ip="192.0.2.1",
        manual="tea.pdf",
    )
    Product.objects.create(name="Rye Bread 100%", price=Decimal("2.00"), status="draft", is_new=True)
    tea.tags.set([Tag.objects.create(name="hot"), Tag.objects.create(name="green")])


@pytest.fixture
def client() -> PipelineClient:
    return peer(Categories, Tags, Products)


async def names(client: PipelineClient, **arguments: Any) -> list[str]:
    page = await data(client, "product_list", fields=["name"], **arguments)
    return [row["name"].split()[-1 if "Tea" in row["name"] else 1] for row in page["items"]]


TEA = [
    {"name": "Green Tea"},
    {"name__iexact": "green tea"},
    {"name__contains": "Tea"},
    {"name__icontains": "TEA"},
    {"name__startswith": "Green"},
    {"name__istartswith": "gREEN"},
    {"name__in": ["Green Tea", "Milk"]},
    {"price": 4.5},
    {"price": "4.50"},
    {"price__gt": 4},
    {"price__range": ["4.49", 4.51]},
    {"stock__gte": 3},
    {"stock": 3.0},
    {"stock__in": [3, 4]},
    {"weight__lt": 1},
    {"weight__isnull": False},
    {"status": "active"},
    {"is_new": False},
    {"released": "2025-05-06"},
    {"released__year": 2025},
    {"released__month": 5, "released__day": 6},
    {"released__lt": "2026-01-01"},
    {"updated": "2025-05-06T23:30:00Z"},
    {"updated": "2025-05-07T01:30:00+02:00"},
    {"updated__date": "2025-05-06"},
    {"updated__gte": "2025-05-06"},
    {"opens": "08:00"},
    {"opens__lt": "09:00:00"},
    {"lasts": "PT2H"},
    {"lasts__gte": "01:00:00"},
    {"ip": "192.0.2.1"},
    {"category": "drinks"},
    {"category__in": ["drinks", "food"]},
    {"category__isnull": False},
    {"category__name": "Drinks"},
    {"tags__isnull": False},
    {"not": {"tags__isnull": True}},
    {"or": [{"name": "Milk"}, {"and": [{"stock": 3}, {"not": {"price__lt": 1}}]}]},
    {"not": {"or": [{"price__lte": 2}, {"stock": 99}]}},
    {"not": {"category": None}},
    {"details__isnull": False, "stock": 3},
]


def test_filters_find_matching_rows(client: PipelineClient, stock: None, subtests: pytest.Subtests) -> None:
    async def check(filters: dict[str, Any]) -> None:
        assert await names(client, filters=filters) == ["Tea"]

    for filters in TEA:
        with subtests.test(filters=filters):
            async_to_sync(check)(filters)

    async def check(filters: dict[str, Any]) -> None:
        assert await names(client, filters=filters) == ["Bread"]

    for filters in BREAD:
        with subtests.test(filters=filters):
            async_to_sync(check)(filters)


BREAD = [
    {"category": None},
    {"weight__isnull": True},
    {"not": {"weight__gte": 0}},
    {"not": {"category__name": "Drinks"}},
    {"tags__isnull": True},
    {"name__contains": "100%"},
    {"not": {"name__startswith": "G"}},
    {"status__in": ["draft", "gone"]},
]


WRONG = [
    ({"name": 5}, "filters: name: give a text"),
    ({"name": {"$ne": 1}}, "filters: name: give a value; write the lookup into the name, as name__lookup"),
    ({"name": ["a"]}, "give a text"),
    ({"name": "x" * 1001}, "longer than 1000 characters"),
    ({"name": "a\0b"}, "NUL"),
    ({"name__in": "abc"}, "give a list of values"),
    ({"name__in": ["a"] * 201}, "more than 200 values"),
    ({"name__gt": "a"}, "name does not support the lookup 'gt'; use exact,"),
    ({"name__ne": "a"}, "name does not support the lookup 'ne'; use exact,"),
    ({"status__icontains": "a"}, "status does not support the lookup 'icontains'"),
    ({"stock": "3"}, "give an integer"),
    ({"stock": True}, "give an integer"),
    ({"stock": 3.5}, "give an integer"),
    ({"stock": 2**63}, "out of range of 64 bits"),
    ({"stock__range": [1]}, "a list of two values"),
    ({"weight": "heavy"}, "give a number"),
    ({"price": "NaN"}, "out of range"),
    ({"price": "1e5000"}, "out of range"),
    ({"price": "12345678"}, "not a decimal number of this field's size"),
    ({"price": "abc"}, "not a decimal number"),
    ({"price": [1]}, "give a number"),
    ({"is_new": 1}, "give true or false"),
    ({"is_new__isnull": "yes"}, "give true or false"),
    ({"released": "2025-02-30"}, "give a date"),
    ({"released": 20250101}, "give a date"),
    ({"released__year": 0}, "out of range"),
    ({"released__year": 99999}, "out of range"),
    ({"released__hour": 1}, "released does not support the lookup 'hour'"),
    ({"updated": "0001-01-01T00:00:00+14:00"}, "out of range"),
    ({"updated": "yesterday"}, "give a date and time"),
    ({"opens": "25:00"}, "give a time of day"),
    ({"opens": "08:00+02:00"}, "without a time zone"),
    ({"lasts": "P99999999999D"}, "give a duration"),
    ({"lasts": "P999999999D"}, "out of range"),
    ({"ip": "192.0.2.999"}, "not an IP address"),
    ({"blob": "abc"}, "blob does not support the lookup 'exact'; use isnull"),
    ({"details": {}}, "does not support the lookup"),
    ({"manual": "a"}, "does not support the lookup"),
    ({"or": {"name": "a"}}, "filters.or: is an object; give a list"),
    ({"or": []}, "'or' takes a list"),
    ({"and": ["a"]}, 'filters.and[0]: "a" is a string; give an object'),
    ({"not": [{"name": "a"}]}, "filters.not: is a list; give an object"),
    ({"or": [{}]}, "the object is empty"),
    ({"not": {}}, "the object is empty"),
    ({"or": [{"and": {"stock": 1}}]}, "'and' takes a list"),
    ({"not": {"not": 1}}, "'not' takes an object"),
    ({"not": {"not": {"not": {"not": {"stock": 1}}}}}, "deeper than 4 levels"),
    ({"or": [{"stock": n} for n in range(60)]}, "more than 50 conditions"),
    ({"or": [{"and": [{"stock": 1}]}] * 60}, "more than 50 conditions"),
]


def test_invalid_filters_are_refused_with_the_reason(client: PipelineClient, subtests: pytest.Subtests) -> None:
    async def check(filters: dict[str, Any], message: str) -> None:
        text = await client.error("product_count", filters=filters)
        assert message in text
        assert len(text) < 2500

    for filters, message in WRONG:
        with subtests.test(filters=filters, message=message):
            async_to_sync(check)(filters, message)


async def test_lists_have_each_row_once_and_totals_on_request(client: PipelineClient, stock: None) -> None:
    assert await names(client, filters={"tags__in": [tag.pk async for tag in Tag.objects.all()]}) == ["Tea"]
    assert await data(client, "product_count", filters={"tags__isnull": False}) == {"count": 1}

    page = await data(client, "product_list", limit=1, with_total=True)
    assert (page["total"], len(page["items"])) == (2, 1)
    assert (await data(client, "product_list", limit=1))["total"] is None


async def test_conditions_on_a_path_to_many_rows_apply_to_one_row(stock: None, admin_user: Any) -> None:
    class Bought(ModelToolset):
        model = Product
        fields = ["name", "lines", "category"]
        list_filter = ["lines", "lines__quantity"]
        tools = ["list"]

    class Lines(ModelToolset):
        model = Line
        fields = ["quantity", "product", "product__category__name"]
        list_filter = ["product__category__name"]
        tools = ["list", "get"]

    tea = await Product.objects.aget(stock=3)
    order = await Order.objects.acreate(owner=admin_user, reference="1")
    lines = [await Line.objects.acreate(order=order, product=tea, quantity=n) for n in (1, 5)]
    client = peer(Categories, Bought, Lines)
    page = await data(client, "product_list", filters={"lines__quantity__gte": 1})
    assert [row["name"] for row in page["items"]] == ["Green Tea"]
    uris = [f"shop.line://{line.pk}" for line in lines]
    assert [line["uri"] for line in page["items"][0]["lines"]] == uris
    assert (await data(client, "product_list", filters={"lines__quantity": 3}))["items"] == []
    found = await data(client, "line_list", filters={"product__category__name": "Drinks"}, order_by=["quantity"])
    assert [row["quantity"] for row in found["items"]] == [1, 5]
    assert found["items"][0]["product__category__name"] == "Drinks"


# Search


def test_search_finds_rows_with_every_word(client: PipelineClient, stock: None, subtests: pytest.Subtests) -> None:
    async def check(text: str, found: list[str]) -> None:
        assert await names(client, search=text) == found

    cases = (
        ("tea", ["Tea"]),
        ("GREEN tea", ["Tea"]),
        ("green bread", []),
        ('"green tea"', ["Tea"]),
        ('"tea green"', []),
        ("drinks", ["Tea"]),
        ("100%", ["Bread"]),
        ("'", []),
        ('"', []),
        ("   ", ["Tea", "Bread"]),
    )
    for text, found in cases:
        with subtests.test(text=text, found=found):
            async_to_sync(check)(text, found)


async def test_searches_are_bounded(client: PipelineClient) -> None:
    assert "more than 10 words" in await client.error("product_list", search="a " * 11)
    assert "longer than the maximum of 1000 characters" in await client.error("product_list", search="a" * 1001)
    assert "NUL" in await client.error("product_list", search="a\0")


async def test_search_prefixes_match_those_of_the_admin(stock: None) -> None:
    class Precise(ModelToolset):
        model = Product
        fields = ["name", "category", "category__name"]
        search_fields = ["^name", "=category__name"]
        tools = ["list"]

    client = peer(Categories, Precise)
    assert await names(client, search="gre") == ["Tea"]
    assert await names(client, search="tea") == []
    assert await names(client, search="drinks") == ["Tea"]
    assert await names(client, search="drink") == []


async def test_the_search_hook_can_be_overridden(stock: None) -> None:
    class Own(ModelToolset):
        model = Product
        fields = ["name"]
        tools = ["list"]

        def get_search_results(self, ctx: Context, queryset: Any, search_term: str) -> Any:
            return queryset.filter(stock=3) if search_term == "three" else None

    client = peer(Own)
    assert await names(client, search="three") == ["Tea"]
    assert "search is not supported here" in await client.error("product_list", search="four")


async def test_without_search_fields_there_is_no_search_argument(stock: None) -> None:
    class Unsearched(ModelToolset):
        model = Product
        fields = ["name"]
        tools = ["list"]

    assert "unknown argument 'search'" in await peer(Unsearched).error("product_list", search="a")
