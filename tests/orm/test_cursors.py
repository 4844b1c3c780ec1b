"""Pages: every row once in every order, and cursors that are good for nothing else."""

import datetime as dt
import itertools
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from mcp_django import Context, ModelToolset
from tests.orm.toolsets import Categories, Orders, Products, Tags, data, peer, principal
from tests.server.client import PipelineClient, make_server
from tests.shop.models import Category, Order, Product

pytestmark = pytest.mark.django_db


OTHER = "cursor: invalid for these filters, this search and this order"


class Rows(ModelToolset):
    model = Product
    fields = ["name", "stock", "weight", "price", "released", "updated", "lasts", "category", "category__name", "tags"]
    list_filter = ["stock", "name"]
    search_fields = ["name"]


@pytest.fixture
def rows(db: Any) -> None:
    """Ties, nulls, and values that come close to each other."""
    food = Category.objects.create(slug="food", name="Food")
    moment = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    Product.objects.bulk_create(
        Product(
            name=f"P{n:02}",
            stock=n % 3,
            weight=None if n % 4 == 0 else (n % 5) / 3,
            price=f"{n % 4}.10",
            released=None if n % 3 == 0 else dt.date(2026, 1, 1 + n % 2),
            updated=None if n % 5 == 0 else moment + dt.timedelta(microseconds=n % 4),
            lasts=None if n % 2 else dt.timedelta(hours=n % 3, microseconds=1),
            category=food if n % 2 else None,
        )
        for n in range(17)
    )


async def paged(client: PipelineClient, tool: str = "product_list", **arguments: Any) -> list[Any]:
    """The primary keys of all pages."""
    seen, more = [], {}
    for _ in range(100):
        page = await data(client, tool, **arguments, **more)
        seen += [row["pk"] for row in page["items"]]
        if page["next_cursor"] is None:
            return seen
        more = {"cursor": page["next_cursor"]}
    raise AssertionError("the pages do not end")


ORDERS = [
    *(["pk"], ["-pk"], ["stock"], ["-stock"], ["weight"], ["-weight"], ["price", "-weight"], ["-released", "stock"]),
    *(["updated"], ["-updated"], ["lasts"], ["-lasts"], ["category"], ["-category__name", "weight"]),
    ["stock", "weight", "released", "-updated", "name"],
]


def test_pages_have_every_row_once_in_the_order_of_a_single_page(rows: None, subtests: pytest.Subtests) -> None:
    async def check(order: list[str]) -> None:
        client = peer(Categories, Tags, Rows)
        whole = await data(client, "product_list", order_by=order, limit=100)
        expected = [row["pk"] for row in whole["items"]]
        assert len(set(expected)) == 17
        assert await paged(client, order_by=order, limit=2) == expected

    for order in ORDERS:
        with subtests.test(order=order):
            async_to_sync(check)(order)


async def test_null_is_greater_than_every_value(rows: None) -> None:
    client = peer(Categories, Tags, Rows)
    up = (await data(client, "product_list", order_by=["weight"], limit=100))["items"]
    down = (await data(client, "product_list", order_by=["-weight"], limit=100))["items"]
    weights = [row["weight"] for row in up]
    assert weights[-5:] == [None] * 5
    assert None not in weights[:-5]
    assert [row["weight"] for row in down] == weights[::-1]


async def test_inserted_and_deleted_rows_do_not_shift_pages(rows: None) -> None:
    client = peer(Categories, Tags, Rows)
    first = await data(client, "product_list", order_by=["name"], limit=5)
    await Product.objects.filter(name__in=["P00", "P04"]).adelete()
    await Product.objects.acreate(name="P00a")
    second = await data(client, "product_list", order_by=["name"], limit=5, cursor=first["next_cursor"])
    assert [row["name"] for row in second["items"]] == ["P05", "P06", "P07", "P08", "P09"]


async def test_the_default_order_is_the_visible_part_of_the_model_ordering(rows: None) -> None:
    class Unnamed(ModelToolset):
        model = Product
        fields = ["stock"]
        tools = ["list", "describe"]

    assert (await data(peer(Categories, Tags, Rows), "product_describe"))["ordering"] == ["name"]
    client = peer(Unnamed)
    assert (await data(client, "product_describe"))["ordering"] == []
    assert await paged(client, limit=6) == [product.pk async for product in Product.objects.order_by("pk")]


async def test_hidden_related_rows_sort_like_nulls(rows: None) -> None:
    class Nothing(Categories):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).none()

    client = peer(Nothing, Tags, Rows)
    everyone = [product.pk async for product in Product.objects.order_by("pk")]
    assert await paged(client, order_by=["category__name"], limit=4) == everyone
    assert await paged(client, order_by=["-category"], limit=4) == everyone[::-1]


# A cursor is hostile


@pytest.fixture
def client(rows: None) -> PipelineClient:
    return peer(Categories, Tags, Rows)


def test_a_cursor_is_bound_to_its_query(client: PipelineClient, subtests: pytest.Subtests) -> None:
    async def check(other: dict[str, Any]) -> None:
        page = await data(client, "product_list", order_by=["stock"], limit=2)
        assert OTHER in await client.error(
            "product_list", **{"order_by": ["stock"], **other}, cursor=page["next_cursor"]
        )
        # Arguments that do not affect the query may change.
        again = await client.call(
            "product_list", order_by=["stock"], limit=9, fields=["name"], cursor=page["next_cursor"]
        )
        assert not again["isError"]

    for other in (
        {"filters": {"stock": 1}},
        {"search": "P"},
        {"order_by": ["name"]},
        {"order_by": ["-stock"]},
        {"order_by": ["stock", "name"]},
    ):
        with subtests.test(other=other):
            async_to_sync(check)(other)


async def test_a_cursor_is_bound_to_its_caller_and_tool(client: PipelineClient, django_user_model: Any) -> None:
    class Others(Rows):
        prefix = "item"

    page = await data(client, "product_list", limit=2)
    elsewhere = peer(Categories, Tags, Others)
    superuser = await sync_to_async(django_user_model.objects.create_superuser)("root")
    for stranger, tool in (
        (elsewhere, "item_list"),
        (PipelineClient(client.server, principal(superuser)), "product_list"),
    ):
        assert (await data(stranger, tool, limit=2))["next_cursor"]
        assert OTHER in await stranger.error(tool, cursor=page["next_cursor"], limit=2)


def test_invented_cursors_are_refused(client: PipelineClient, subtests: pytest.Subtests) -> None:
    async def check(change: str) -> None:
        assert OTHER in await client.error("product_list", cursor=change)

    for change in ("", "x", "A" * 200, "\0", "é", "=" * 8, "A" * 100_000):
        with subtests.test(change=change):
            async_to_sync(check)(change)


async def test_no_character_of_a_cursor_can_be_changed(client: PipelineClient) -> None:
    cursor = (await data(client, "product_list", limit=2))["next_cursor"]
    for at in itertools.islice(range(len(cursor)), 0, None, 7):
        changed = cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]
        assert OTHER in await client.error("product_list", cursor=changed)


async def test_an_order_by_large_texts_has_no_next_page(rows: None) -> None:
    class Texts(ModelToolset):
        model = Product
        fields = ["name", "description"]
        tools = ["list"]

    await Product.objects.aupdate(description="x" * 2000)
    client = peer(Texts)
    assert "order by another field" in await client.error("product_list", order_by=["description"], limit=2)
    assert len((await data(client, "product_list", order_by=["description"], limit=50))["items"]) == 17


async def test_uuid_keys_can_be_paged(admin_user: Any) -> None:
    await Order.objects.abulk_create([Order(owner=admin_user, reference="same") for _ in range(7)])
    client = PipelineClient(make_server(toolsets=[Orders()]), principal(admin_user))
    seen = await paged(client, "order_list", limit=3)
    assert len(set(seen)) == 7


async def test_the_limit_of_a_page_is_bounded(client: PipelineClient) -> None:
    assert "greater than the maximum of 100" in await client.error("product_list", limit=101)
    assert "less than the minimum of 1" in await client.error("product_list", limit=0)
    assert len((await data(client, "product_list"))["items"]) == 17
    assert Products.page_size == 20
