"""Hidden fields and rows cannot be reached by any filter, order, search, aggregation, path, cursor or error."""

import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import Manager, QuerySet

from mcp_django import Context, ModelToolset
from mcp_django.orm.row_permissions import can_restrict_rows
from mcp_django.protocol.errors import InvalidParams, ResourceNotFound
from tests.orm.test_generic import peer as generic_peer
from tests.orm.test_resources import read
from tests.orm.toolsets import Categories, Orders, Products, Tags, data, peer, principal
from tests.server.client import PipelineClient
from tests.shop.models import Category, Line, Order, Product, Supplier, Tag
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db

SECRET = "hunter2"
HIDDEN = [
    *("cost", "secret_token", "description", "homepage", "supplier__name", "supplier__bank_account", "supplier_id"),
    *("supplier__products__secret_token", "tags__internal_note", "category__parent__name", "lines", "lines__order"),
    *("lines__order__owner__password", "category__products__secret_token", "pk__secret_token", "margin", "loud"),
    *("details__origin", "details__secret", "name__regex", "name__iregex", "blob__contains", "__all__", "", "_state"),
    *("name__unaccent", "name__search", "tags__products__cost", "category__name__regex", "objects", "__class__"),
]


class Everything(Products):
    tools = ["describe", "list", "get", "count", "aggregate"]


@pytest.fixture
def client() -> PipelineClient:
    return peer(Categories, Tags, Everything, Orders)


@pytest.fixture
def product(db: Any) -> Product:
    supplier = Supplier.objects.create(name="Hidden", bank_account=SECRET)
    drinks = Category.objects.create(slug="drinks", name="Drinks")
    made = Product.objects.create(
        name="Tea", secret_token=SECRET, description=SECRET, homepage=f"https://{SECRET}.example", supplier=supplier
    )
    made.category = drinks
    made.save()
    made.tags.add(Tag.objects.create(name="hot", internal_note=SECRET))
    return made


def test_hidden_names_cannot_be_used_in_any_argument(
    client: PipelineClient, product: Product, subtests: pytest.Subtests
) -> None:
    async def check(name: str) -> None:
        for tool in ("product_list", "product_count", "product_aggregate"):
            message = await client.error(tool, filters={name: SECRET})
            assert "unknown filter" in message or "does not support the lookup" in message
            assert SECRET not in message

    for name in HIDDEN:
        with subtests.test(name=name), rolled_back():
            async_to_sync(check)(name)

    async def check(name: str) -> None:
        assert "unknown field to order by" in await client.error("product_list", order_by=[name])
        assert "unknown field to order by" in await client.error("product_list", order_by=[f"-{name}"])
        assert "unknown field to group" in await client.error("product_aggregate", group_by=[name])
        metric = {"function": "max", "field": name}
        assert "unknown field to group" in await client.error("product_aggregate", metrics=[metric])
        if name not in ("margin", "loud"):
            assert "unknown field" in await client.error("product_list", fields=[name])
            assert "unknown field" in await client.error("product_get", pk=product.pk, fields=[name])

    for name in HIDDEN:
        with subtests.test(name=name), rolled_back():
            async_to_sync(check)(name)

    async def check(nested: dict[str, Any]) -> None:
        assert "unknown filter" in await client.error("product_count", filters=nested)

    for nested in ({"not": {"cost": 1}}, {"or": [{"stock": 1}, {"secret_token": SECRET}]}):
        with subtests.test(nested=nested), rolled_back():
            async_to_sync(check)(nested)


async def test_search_uses_search_fields_only(client: PipelineClient, product: Product) -> None:
    for text in (SECRET, "Hidden", f'"{SECRET}"', "%", "_", "Te_", ""):
        page = await data(client, "product_list", search=text, fields=["name"])
        assert [row["name"] for row in page["items"]] == ([] if text else ["Tea"]), text


async def test_no_result_contains_a_secret(client: PipelineClient, product: Product) -> None:
    for tool, arguments in [
        ("product_describe", {}),
        ("product_list", {}),
        ("product_get", {"pk": product.pk}),
        ("tag_list", {}),
        ("product_aggregate", {"group_by": ["category", "status"]}),
    ]:
        result = await client.call(tool, **arguments)
        assert SECRET not in str(result)
        assert "Hidden" not in str(result)
        assert "bank_account" not in str(result)


async def test_hidden_names_are_in_no_schema(client: PipelineClient) -> None:
    text = str(await client.request("tools/list"))
    for name in ("secret_token", "cost", "bank_account", "internal_note", "password", "homepage"):
        assert not re.search(rf"\b{name}\b", text)


# Rules that depend on the caller


class Viewer:
    """A user of the project's with some of its permissions."""

    def __init__(self, *codenames: str, name: str = "viewer") -> None:
        self.user = get_user_model().objects.create_user(name)
        self.user.user_permissions.set(Permission.objects.filter(codename__in=codenames))

    def client(self, *toolsets: type[ModelToolset]) -> PipelineClient:
        return peer(*(toolsets or (Categories, Tags, Everything, Orders)), principal=principal(self.user))


def test_without_the_permission_tools_are_absent(product: Product) -> None:
    client = Viewer("view_tag").client()
    assert async_to_sync(client.names)() == ["tag_count", "tag_describe", "tag_get", "tag_list"]
    with pytest.raises(InvalidParams, match="Unknown tool: product_list"):
        async_to_sync(client.call)("product_list")


@pytest.fixture
def limited(product: Product) -> PipelineClient:
    """A user who may view products, and no categories or tags."""
    return Viewer("view_product").client()


async def test_a_path_into_a_model_that_the_caller_may_not_view_is_unknown(
    limited: PipelineClient, product: Product
) -> None:
    row = await data(limited, "product_get", pk=product.pk)
    assert "category__name" not in row
    assert row["category"] == {"pk": "drinks"}
    assert row["tags"] == [{"pk": (await Tag.objects.aget()).pk}]
    hidden = await limited.error("product_list", filters={"category__name": "Drinks"})
    unknown = await limited.error("product_list", filters={"category__nome": "Drinks"})
    assert hidden == unknown.replace("nome", "name")
    hidden = await limited.error("product_list", filters={"category__name__icontains": "Drinks"})
    unknown = await limited.error("product_list", filters={"category__nome__icontains": "Drinks"})
    assert hidden == unknown.replace("nome", "name")
    for arguments in ({"order_by": ["category__name"]}, {"fields": ["category__name"]}):
        hidden = await limited.error("product_list", **arguments)
        unknown = await limited.error("product_list", **{k: ["category__nome"] for k in arguments})
        assert hidden == unknown.replace("nome", "name")
    assert "unknown" in await limited.error("product_aggregate", group_by=["category__name"])
    assert "Drinks" not in str(await data(limited, "product_aggregate", group_by=["category"]))
    assert "category__name" not in str(await data(limited, "product_describe"))
    assert (await data(limited, "product_list", search="drinks"))["items"] == []


async def test_no_list_names_a_path_or_a_model_that_the_caller_may_not_use(limited: PipelineClient) -> None:
    generic = generic_peer(Categories, Tags, Everything, principal=limited.principal)
    for client in (limited, generic):
        for method in ("tools/list", "resources/templates/list"):
            text = str(await client.request(method))
            assert re.search("(?i)product", text)
            assert not re.search("category__name|categories", text)


async def test_a_page_is_filtered_by_a_path_for_callers_who_may_use_it(
    client: PipelineClient, limited: PipelineClient, product: Product
) -> None:
    path, unknown = "shop.product://?category__name=Drinks", "shop.product://?category__nome=Drinks"
    assert [row["name"] for row in (await read(client, path))["items"]] == ["Tea"]
    problems = []
    for uri in (path, unknown):
        with pytest.raises(ResourceNotFound) as problem:
            await limited.request("resources/read", {"uri": uri})
        problems.append((problem.value.code, problem.value.message))
    assert problems[0] == problems[1]


class FoodOnly(Categories):
    """Only food is in sight."""

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).filter(slug="food")


@pytest.fixture
def narrow(product: Product) -> PipelineClient:
    """A user who sees all products, and only the category food."""
    food = Category.objects.create(slug="food", name="Food")
    Product.objects.create(name="Bread", category=food)
    Product.objects.create(name="Loose")
    return peer(FoodOnly, Tags, Everything)


async def names(client: PipelineClient, **arguments: Any) -> list[str]:
    page = await data(client, "product_list", fields=["name"], **arguments)
    return [row["name"] for row in page["items"]]


async def test_a_reference_to_a_hidden_row_is_null(narrow: PipelineClient, product: Product) -> None:
    row = await data(narrow, "product_get", pk=product.pk)
    assert row["category"] is None
    assert row["category__name"] is None
    for filters in (
        {"category": "drinks"},
        {"category__in": ["drinks"]},
        {"category__name": "Drinks"},
        {"category__name__startswith": "D"},
        {"not": {"category__isnull": True}, "category": "drinks"},
    ):
        assert await names(narrow, filters=filters) == []
    assert await names(narrow, filters={"category__isnull": True}) == ["Loose", "Tea"]
    assert await names(narrow, filters={"category__name__isnull": True}) == ["Loose", "Tea"]
    assert await names(narrow, filters={"category__isnull": False}) == ["Bread"]
    assert await names(narrow, filters={"not": {"category": "drinks"}}) == ["Bread", "Loose", "Tea"]
    assert await names(narrow, search="drinks") == []


async def test_hidden_rows_do_not_affect_the_order(narrow: PipelineClient, product: Product) -> None:
    ascending = await names(narrow, order_by=["category__name", "name"])
    descending = await names(narrow, order_by=["-category__name", "name"])
    assert ascending == ["Bread", "Loose", "Tea"]
    assert descending == ["Loose", "Tea", "Bread"]


async def test_related_lists_contain_visible_rows_only(product: Product) -> None:
    class Cold(Tags):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).exclude(name="hot")

    class Tagged(Everything):
        fields = ["name", "tags"]
        list_filter = ["tags", "tags__name"]
        search_fields = ["name"]

    await product.tags.acreate(name="green")
    client = peer(Cold, Tagged)
    assert [tag["label"] for tag in (await data(client, "product_get", pk=product.pk))["tags"]] == ["green"]
    assert await names(client, filters={"tags__name": "hot"}) == []
    assert await names(client, filters={"tags__name": "green"}) == ["Tea"]
    assert await names(client, filters={"not": {"tags__name": "hot"}}) == ["Tea"]
    await product.tags.filter(name="green").adelete()
    assert await names(client, filters={"tags__isnull": True}) == ["Tea"]


@pytest.fixture
def orders(db: Any) -> tuple[Viewer, Viewer]:
    ada, bob = Viewer("view_order", name="ada"), Viewer("view_order", name="bob")
    for viewer in (ada, bob):
        Order.objects.create(owner=viewer.user, reference=f"of {viewer.user.username}")
    return ada, bob


async def test_other_owners_rows_are_absent(orders: tuple[Viewer, Viewer]) -> None:
    ada, bob = orders
    client = ada.client(Orders)
    mine, theirs = await Order.objects.aget(owner=ada.user), await Order.objects.aget(owner=bob.user)
    assert [row["reference"] for row in (await data(client, "order_list"))["items"]] == ["of ada"]
    assert await data(client, "order_count") == {"count": 1}
    assert (await data(client, "order_get", pk=str(mine.pk)))["pk"] == str(mine.pk)
    foreign = await client.error("order_get", pk=str(theirs.pk))
    missing = await client.error("order_get", pk="00000000-0000-4000-8000-000000000000")
    assert foreign.replace(str(theirs.pk), "X") == missing.replace("00000000-0000-4000-8000-000000000000", "X")
    assert await data(client, "order_count", filters={"pk": str(theirs.pk)}) == {"count": 0}
    assert await data(client, "order_count", filters={"or": [{"reference": "of bob"}]}) == {"count": 0}


async def test_a_user_behind_a_relation_is_a_bare_key(orders: tuple[Viewer, Viewer]) -> None:
    ada, _ = orders
    (row,) = (await data(ada.client(Orders), "order_list"))["items"]
    assert row["owner"] == ada.user.pk
    assert "unknown filter" in await ada.client(Orders).error("order_list", filters={"owner__password": "x"})
    assert "unknown filter" in await ada.client(Orders).error("order_list", filters={"owner__username": "ada"})


async def test_an_overridden_hook_decides(product: Product) -> None:
    class Guests(Everything):
        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            return ctx.principal.key.endswith("guest|") and (obj is None or obj.name == "Tea")

    guest = peer(Categories, Tags, Guests, principal=principal(None, "guest"))
    assert "product_list" in await guest.names()
    assert (await data(guest, "product_get", pk=product.pk))["name"] == "Tea"
    other = await Product.objects.acreate(name="Coffee")
    assert "There is no product" in await guest.error("product_get", pk=other.pk)
    stranger = peer(Categories, Tags, Guests, principal=principal(None, "stranger"))
    for tool in ("product_list", "product_get", "product_count", "product_aggregate", "product_describe"):
        with pytest.raises(InvalidParams, match=f"Unknown tool: {tool}"):
            await stranger.call(tool, **({"pk": 1} if tool == "product_get" else {}))


async def test_listed_sensitive_fields_are_shown(product: Product) -> None:
    class Tokens(ModelToolset):
        model = Product
        fields = ["name", "secret_token"]
        sensitive_fields = ["secret_token"]
        list_filter = "__all__"
        tools = ["list", "get", "aggregate"]

    class Lines(ModelToolset):
        model = Line
        fields = ["quantity", "product", "product__secret_token"]
        sensitive_fields = ["product__secret_token"]
        tools = ["list"]

    client = peer(Tokens, Lines)
    assert (await data(client, "product_get", pk=product.pk))["secret_token"] == SECRET
    assert "unknown filter" in await client.error("product_list", filters={"secret_token__startswith": "h"})
    assert "unknown field" in await client.error("product_list", order_by=["secret_token"])
    assert "unknown field" in await client.error("product_aggregate", group_by=["secret_token"])
    assert "secret_token" not in client.server.registry.toolsets[1].exposure.fields


class Tenants(QuerySet[Any]):
    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)


class Plain(QuerySet[Any]):
    def cheap(self) -> Any:
        return self.filter(price__lt=1)


class Active(Manager[Any]):
    def all(self) -> Any:
        return super().all().filter(status="active")


def test_a_manager_that_filters_rows_is_detected(subtests: pytest.Subtests) -> None:
    """Of no other is a queryset kept for all callers."""
    cases = (
        (Manager, False),
        (Manager.from_queryset(Plain), False),
        (type(Plain.as_manager()), False),
        (Active, True),
        (Manager.from_queryset(Tenants), True),
        (type(Tenants.as_manager()), True),
    )
    for manager, leaves_out in cases:
        with subtests.test(manager=manager, leaves_out=leaves_out), rolled_back():
            assert can_restrict_rows(manager) is leaves_out
