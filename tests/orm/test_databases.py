"""Where rows are read from: replicas, routers, and the tenants of one table."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.db.models.sql import compiler
from django.test import override_settings

from mcp_django import Context, ModelToolset
from tests.orm.test_resources import offered, read
from tests.orm.toolsets import Categories, Products, Tags, peer, principal
from tests.server.client import PipelineClient
from tests.shop.models import Category, Line, Order, Product, Tag

pytestmark = pytest.mark.django_db


class Reader:
    """A router whose reads go to the replica."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "replica" if model._meta.app_label == "shop" else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The aliases of the databases that statements are made for. The replica has the same rows, and shares the test's
    transaction.
    """
    found: list[str] = []
    make = compiler.SQLCompiler.__init__

    def note(self: Any, query: Any, connection: Any, using: str | None, *args: Any, **kwargs: Any) -> None:
        make(self, query, connection, using, *args, **kwargs)
        if query.model is not None and query.model._meta.app_label == "shop" and using is not None:
            found.append(using)

    monkeypatch.setattr(compiler.SQLCompiler, "__init__", note)
    connections["replica"] = connections["default"]
    yield found
    del connections["replica"]


async def everything(client: PipelineClient) -> None:
    """Read a product by all that reads."""
    page = (await client.call("product_list", search="tea", with_total=True))["structuredContent"]
    [row] = page["items"]
    assert row["tags"][0]["label"] == "hot"
    assert page["total"] == 1
    await client.call("product_get", pk=row["pk"])
    await client.call("product_count", filters={"tags": row["tags"][0]["pk"]})
    await read(client, f"shop.product://{row['pk']}")
    assert await offered(client, "shop.product://{pk}", "pk", "tea") == [str(row["pk"])]


async def tea() -> Product:
    """A product with relations."""
    product = await Product.objects.acreate(
        name="Tea", category=await Category.objects.acreate(slug="d", name="Drinks")
    )
    await product.tags.aadd(await Tag.objects.acreate(name="hot"))
    return product


async def test_a_toolset_reads_from_the_database_it_names(asked: list[str]) -> None:
    class Replicated(Products):
        using = "replica"

    await tea()
    asked.clear()
    await everything(peer(Replicated, Categories, Tags))
    assert set(asked) == {"replica"}


async def test_by_default_the_routers_choose_the_database_for_reads(asked: list[str]) -> None:
    await tea()
    asked.clear()
    with override_settings(DATABASE_ROUTERS=[Reader()]):
        await everything(peer())
    assert set(asked) == {"replica"}


async def test_a_write_reads_and_writes_the_database_for_writes(asked: list[str], admin_user: Any) -> None:
    class Replicated(Tags):
        using = "replica"
        tools = ["list", "create", "update", "delete", "history"]

    client = peer(Replicated, principal=principal(admin_user))
    made = (await client.call("tag_create", values={"name": "hot"}))["structuredContent"]
    changed = await client.call("tag_update", pk=made["pk"], values={"name": "cold"})
    assert changed["structuredContent"]["item"]["name"] == "cold"
    await client.call("tag_delete", pk=made["pk"])
    assert set(asked) == {"default"}
    await client.call("tag_list")
    assert set(asked) == {"default", "replica"}


class Houses(ModelToolset):
    """Categories are the tenants."""

    model = Category
    fields = ["slug", "name"]
    search_fields = ["name"]

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).filter(slug=ctx.url_kwargs["house"])


class Goods(ModelToolset):
    """Products of the tenant that the URL names."""

    model = Product
    fields = ["name", "category", "category__name", "stock"]
    search_fields = ["name"]
    list_filter = "__all__"
    tools = ["list", "get", "count", "aggregate"]

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).filter(category=ctx.url_kwargs["house"])


class Lines(ModelToolset):
    """Lines of orders, which have no owner of their own."""

    model = Line
    fields = ["quantity", "product", "product__name"]
    list_filter = "__all__"
    tools = ["list", "count", "aggregate"]


async def test_clients_of_a_tenant_see_its_rows_only() -> None:
    order = await Order.objects.acreate(owner=await User.objects.acreate(username="ada"), reference="1")
    for house in ("red", "blue"):
        await Category.objects.acreate(slug=house, name=f"{house} house")
        for number in range(2):
            product = await Product.objects.acreate(name=f"{house} {number}", category_id=house, stock=10)
            await Line.objects.acreate(order=order, product=product)
    foreign = await Product.objects.aget(name="blue 0")
    client = peer(Houses, Goods, Lines, kwargs={"house": "red"})

    async def answer(tool: str, **arguments: Any) -> Any:
        return (await client.call(tool, **arguments))["structuredContent"]

    assert [row["name"] for row in (await answer("product_list"))["items"]] == ["red 0", "red 1"]
    assert await answer("product_count", filters={"or": [{"category": "blue"}, {"name__icontains": "b"}]}) == {
        "count": 0
    }
    assert (await answer("product_aggregate", metrics=[{"function": "sum", "field": "stock"}]))["groups"] == [
        {"sum_stock": 20}
    ]
    assert await client.error("product_get", pk=foreign.pk) == (await client.error("product_get", pk=0)).replace(
        "'0'", f"'{foreign.pk}'"
    )
    # Across relations, too.
    assert await answer("line_count", filters={"product__name__startswith": "blue"}) == {"count": 0}
    names = {row["product__name"] for row in (await answer("line_list"))["items"]}
    assert names == {"red 0", "red 1", None}
    groups = (await answer("line_aggregate", group_by=["product__name"]))["groups"]
    assert {group["product__name"] for group in groups} == {"red 0", "red 1", None}
    assert await offered(client, "shop.category://{pk}", "pk", "house") == ["red"]
    assert len((await read(client, "shop.product://?category=blue"))["items"]) == 0


def test_methods_of_a_model_are_called_as_the_admin_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    for name in ("save", "delete"):
        monkeypatch.setattr(Category, name, lambda self, **options: calls.append(options))

    class Elsewhere(Categories):
        def db_for_write(self, ctx: Context) -> str:
            return "replica"

    for kind, options in ((Categories, {}), (Elsewhere, {"using": "replica"})):
        toolset: Any = kind()
        toolset.save_model(None, Category(slug="a"), None, True)
        toolset.save_model(None, Category(slug="a"), None, False)
        toolset.delete_model(None, Category(slug="a"))
        assert calls == [options, {**options, "force_insert": True}, options]
        calls.clear()
