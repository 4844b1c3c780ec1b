"""Attempts of a hostile client: hidden fields, rows of others, and malicious input.

Each hidden path is held against one that does not exist: the two answers must differ in nothing but the name that was
asked for. A path that is refused in other words is an oracle, and so is one that is slower to refuse than to find.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model

from mcp_django import Context, ModelToolset
from tests.orm.toolsets import Categories, Products, Tags, data, peer, principal
from tests.server.client import PipelineClient
from tests.shop.models import Category, Line, Order, Product, Supplier, Tag

pytestmark = pytest.mark.django_db
SECRETS = ("Secret Supplies", "CH93-0076", "key-4711", "hunter2", "whispered", "987.65", "for your eyes", "pbkdf2-hash")
"""Values that no answer may hold: of a hidden model, of hidden fields, of rows of another user."""


class Orders(ModelToolset):
    """Orders of the caller, with their owner and lines."""

    model = Order
    fields = ["reference", "owner", "placed", "lines"]
    list_filter = "__all__"
    search_fields = ["reference"]
    tools = ["describe", "list", "get", "count", "aggregate"]

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).filter(owner=ctx.user)


class AllProducts(Products):
    """Products with every reading verb."""

    tools = ["describe", "list", "get", "count", "aggregate"]


@pytest.fixture
def people() -> dict[str, Any]:
    """The caller Alice, and Bob with rows of his own."""
    make = get_user_model().objects.create
    alice = make(username="alice", is_superuser=True, password="pbkdf2-hash-alice")
    bob = make(username="bob", is_superuser=True, password="pbkdf2-hash-bob")
    return {"alice": alice, "bob": bob}


@pytest.fixture
def goods(people: dict[str, Any]) -> dict[str, Any]:
    """A product that touches every secret, and an order of each person."""
    supplier = Supplier.objects.create(name="Secret Supplies", bank_account="CH93-0076", api_key="key-4711")
    drinks = Category.objects.create(slug="drinks", name="Drinks")
    tag = Tag.objects.create(name="hot", internal_note="whispered")
    tea = Product.objects.create(
        name="Tea",
        category=drinks,
        supplier=supplier,
        price=Decimal("4.50"),
        cost=Decimal("987.65"),
        description="for your eyes",
        secret_token="hunter2",
    )
    tea.tags.add(tag)
    orders = {name: Order.objects.create(owner=user, reference=f"of-{name}") for name, user in people.items()}
    for order in orders.values():
        Line.objects.create(order=order, product=tea)
    return {"tea": tea, "supplier": supplier, **orders}


@pytest.fixture
def alice(people: dict[str, Any], goods: dict[str, Any]) -> PipelineClient:
    return peer(Categories, Tags, AllProducts, Orders, principal=principal(people["alice"]))


@pytest.fixture
def bob(people: dict[str, Any], goods: dict[str, Any]) -> PipelineClient:
    return peer(Categories, Tags, AllProducts, Orders, principal=principal(people["bob"]))


HIDDEN = {
    "product": [
        "secret_token",
        "cost",
        "description",
        "homepage",
        "supplier__name",
        "supplier__bank_account",
        "supplier__api_key",
        "supplier__pk",
        "supplier__id",
        "supplier_id",
        "supplier__products__secret_token",
        "category__products__cost",
        "category__parent__products__secret_token",
        "category__slug__products",
        "tags__internal_note",
        "tags__products__secret_token",
        "lines__order__owner__password",
        "lines__order__reference",
        "lines",
        "pk__secret_token",
        "id__in__secret_token",
        "objects",
        "_state",
        "__class__",
        "__dict__",
        "_meta",
        "delete",
        "save",
        "shout",
        "get_status_display",
    ],
    "order": [
        "note",
        "owner__password",
        "owner__username",
        "owner__is_superuser",
        "owner__pk",
        "owner_id",
        "owner__logentry__change_message",
        "owner__groups__name",
        "owner__user_permissions__codename",
        "lines__product__secret_token",
        "lines__product__supplier__bank_account",
        "lines__quantity",
        "lines__order__owner__password",
    ],
    "category": ["products", "products__secret_token", "children", "parent__products__cost", "parent__parent__name"],
}
"""Paths that Django would follow, and that no toolset shows."""
NOWHERE = "zzz__nowhere"

Ask = Callable[[str], tuple[str, dict[str, Any]]]
POSITIONS: dict[str, Ask] = {
    "filter": lambda path: ("list", {"filters": {path: "x"}}),
    "filter by its beginning": lambda path: ("list", {"filters": {f"{path}__startswith": "h"}}),
    "filter by order": lambda path: ("list", {"filters": {f"{path}__gt": "a"}}),
    "filter by absence": lambda path: ("list", {"filters": {f"{path}__isnull": True}}),
    "filter by a set": lambda path: ("list", {"filters": {f"{path}__in": ["x"]}}),
    "filter in a branch": lambda path: ("list", {"filters": {"or": [{"not": {path: "x"}}]}}),
    "count": lambda path: ("count", {"filters": {path: "x"}}),
    "order": lambda path: ("list", {"order_by": [path]}),
    "order, descending": lambda path: ("list", {"order_by": [f"-{path}"]}),
    "fields": lambda path: ("list", {"fields": [path]}),
    "group": lambda path: ("aggregate", {"group_by": [path]}),
    "minimum": lambda path: ("aggregate", {"aggregates": {"found": {"function": "min", "field": path}}}),
    "condition of an aggregate": lambda path: ("aggregate", {"filters": {path: "x"}}),
}


def asked(verb: str, model: str) -> str:
    return f"{model}_{verb}"


def bare(result: dict[str, Any]) -> str:
    """An answer without the suggestion in it, which is of the names that everybody sees."""
    return re.sub(r"did you mean '[a-z_]+'\?; ", "", json.dumps(result))


def test_a_hidden_path_is_refused_like_an_unknown_one(alice: PipelineClient, subtests: pytest.Subtests) -> None:
    async def check(model: str, position: str) -> None:
        make = POSITIONS[position]
        verb, arguments = make(NOWHERE)
        if model == "category" and verb == "aggregate":
            pytest.skip("categories have no aggregates")
        unknown = await alice.call(asked(verb, model), **arguments)
        assert unknown["isError"], "an invented path must not pass"
        for path in HIDDEN[model]:
            _, arguments = make(path)
            hidden = await alice.call(asked(verb, model), **arguments)
            assert bare(hidden) == bare(unknown).replace(NOWHERE, path), path

    for position in POSITIONS:
        for model in HIDDEN:
            with subtests.test(position=position, model=model):
                async_to_sync(check)(model, position)


async def test_no_result_of_a_valid_call_contains_a_secret(alice: PipelineClient, goods: dict[str, Any]) -> None:
    tea, own = goods["tea"], str(goods["alice"].pk)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("product_describe", {}),
        ("product_list", {"with_total": True}),
        ("product_get", {"pk": tea.pk}),
        ("product_count", {}),
        ("order_describe", {}),
        ("order_list", {}),
        ("order_get", {"pk": own}),
        ("category_describe", {}),
        ("category_list", {}),
        ("tag_list", {}),
    ]
    results = [json.dumps(await alice.call(name, **arguments)) for name, arguments in calls]
    results.append(json.dumps(await alice.request("tools/list")))
    for answer in results:
        assert '"isError": true' not in answer
        assert not [secret for secret in SECRETS if secret in answer]


async def test_search_looks_into_search_fields_only(alice: PipelineClient) -> None:
    for secret in (*SECRETS, "hunter", "CH93"):
        assert (await data(alice, "product_list", search=secret))["items"] == []
    assert len((await data(alice, "product_list", search="tea"))["items"]) == 1


class TestRowsOfOthers:
    async def test_are_neither_listed_counted_nor_aggregated(self, alice: PipelineClient) -> None:
        listed = await data(alice, "order_list", with_total=True)
        assert [row["reference"] for row in listed["items"]] == ["of-alice"]
        assert listed["total"] == 1
        assert (await data(alice, "order_count"))["count"] == 1

        result = await alice.call("order_aggregate", group_by=["reference"])
        assert not result["isError"], result
        assert "of-bob" not in json.dumps(result)

    async def test_are_as_absent_as_unknown_keys(self, alice: PipelineClient, goods: dict[str, Any]) -> None:
        theirs, absent_key = str(goods["bob"].pk), "00000000-0000-4000-8000-000000000000"
        foreign = await alice.call("order_get", pk=theirs)
        absent = await alice.call("order_get", pk=absent_key)
        assert foreign["isError"]
        assert json.dumps(foreign).replace(theirs, absent_key) == json.dumps(absent)

        found = await data(alice, "order_count", filters={"pk": str(goods["bob"].pk)})
        assert found["count"] == 0

    def test_are_not_reached_by_any_filter(self, alice: PipelineClient, subtests: pytest.Subtests) -> None:
        async def check(filters: dict[str, Any]) -> None:
            assert (await data(alice, "order_list", filters=filters))["items"] == []
            assert (await data(alice, "order_count", filters=filters))["count"] == 0

        cases = (
            {"reference": "of-bob"},
            {"reference__in": ["of-bob", "nobody"]},
            {"reference__startswith": "of-b"},
            {"not": {"reference": "of-alice"}},
            {"or": [{"reference": "of-bob"}, {"not": {"reference": "of-alice"}}]},
            {"or": [{"reference__isnull": False}, {"placed__isnull": True}], "reference__startswith": "of-b"},
            {"and": [{"not": {"and": [{"reference": "of-alice"}]}}]},
        )
        for filters in cases:
            with subtests.test(filters=filters):
                async_to_sync(check)(filters)

    async def test_cannot_be_paged_into_with_their_owner_s_cursor(
        self, alice: PipelineClient, bob: PipelineClient, people: dict[str, Any]
    ) -> None:
        await Order.objects.abulk_create([Order(owner=people["bob"], reference=f"b{number}") for number in range(3)])
        cursor = (await data(bob, "order_list", limit=1))["next_cursor"]
        assert cursor
        stolen = await alice.call("order_list", limit=1, cursor=cursor)
        assert "of-bob" not in json.dumps(stolen)
        assert "b1" not in json.dumps(stolen)


class TestWithoutPermission:
    @pytest.fixture
    def mallory(self, goods: dict[str, Any]) -> PipelineClient:
        user = get_user_model().objects.create(username="mallory")
        return peer(Categories, Tags, AllProducts, Orders, principal=principal(user))

    def test_a_tool_is_as_unknown_as_one_that_does_not_exist(
        self, mallory: PipelineClient, subtests: pytest.Subtests
    ) -> None:
        async def check(verb: str) -> None:
            with pytest.raises(Exception, match="Unknown tool") as hidden:
                await mallory.call(f"product_{verb}", pk=1)
            with pytest.raises(Exception, match="Unknown tool") as absent:
                await mallory.call(f"nothing_{verb}", pk=1)
            assert str(hidden.value).replace("product", "nothing") == str(absent.value)

        for verb in ("describe", "list", "get", "count", "aggregate"):
            with subtests.test(verb=verb):
                async_to_sync(check)(verb)

    async def test_the_list_of_tools_is_empty(self, mallory: PipelineClient) -> None:
        assert (await mallory.request("tools/list"))["tools"] == []


class TestInputMadeToHurt:
    def test_a_filter_is_refused_by_name_and_at_once(self, alice: PipelineClient, subtests: pytest.Subtests) -> None:
        async def check(filters: dict[str, Any]) -> None:
            result = await alice.call("product_list", filters=filters)
            text = result["content"][0]["text"]
            assert result["isError"]
            assert "Internal error" not in text
            assert len(text) < 1000

        cases = (
            {"not": {"not": {"not": {"not": {"not": {"name": "x"}}}}}},
            {"or": [{"name": str(number)} for number in range(200)]},
            {"name__in": [str(number) for number in range(10_000)]},
            {"name": "x" * 1_000_000},
            {"name": {"$regex": "(a+)+$"}},
            {"name__regex": "(a+)+$"},
            {"name__iregex": "(a|a)*"},
            {"name__search": "x"},
            {"stock": 2**63 - 1, "stock__gt": 1e40},
            {"stock": "1; DROP TABLE shop_product"},
            {"stock": 1.5},
            {"price": "NaN"},
            {"price__gt": "1e999999"},
            {"released": "2026-02-31"},
            {"released__year": 10**12},
            {"name": ["Tea"]},
            {"name": {"name": "Tea"}},
            {"or": []},
            {"or": {}},
            {"not": []},
            {"": "x"},
            {"__": "x"},
            {"name__": "x"},
            {"__name": "x"},
            {"name__exact__exact": "x"},
            {"name__lower__exact": "x"},
            {"details__origin": "x"},
            {"details__contains": {}},
            {"pk__in": [[1]]},
            {"pk": {"pk": 1}},
            {"category": {"slug": "drinks"}},
            {"name%s": "x"},
            {'name" OR 1=1 --': "x"},
            {"name\x00": "x"},
        )
        for filters in cases:
            with subtests.test(filters=filters):
                async_to_sync(check)(filters)

    def test_hostile_search_texts_find_no_rows_and_raise_no_errors(
        self, alice: PipelineClient, subtests: pytest.Subtests
    ) -> None:
        async def check(value: str) -> None:
            for arguments in ({"filters": {"name": value}}, {"filters": {"name__contains": value}}, {"search": value}):
                text = (await alice.call("product_list", **arguments))["content"][0]["text"]
                assert "Internal error" not in text
                assert "Tea" not in text

        for value in ("\x00", "a\x00b", "%", "_", "\\", "'", '"', "💥", "\u202e"):
            with subtests.test(value=value):
                async_to_sync(check)(value)

    def test_an_invented_cursor_is_refused(self, alice: PipelineClient, subtests: pytest.Subtests) -> None:
        async def check(cursor: str) -> None:
            result = await alice.call("product_list", cursor=cursor)
            assert result["isError"]
            assert "Internal error" not in result["content"][0]["text"]

        for cursor in ("", "x", "a.b.c", "\x00", "eyJ9" * 10_000, "0" * 64, "../../etc/passwd", "💥", "null", "[1]"):
            with subtests.test(cursor=cursor):
                async_to_sync(check)(cursor)

    async def test_a_cursor_is_valid_for_its_own_query_only(self, alice: PipelineClient) -> None:
        await Product.objects.abulk_create([Product(name=f"P{number}") for number in range(4)])
        cursor = (await data(alice, "product_list", limit=2))["next_cursor"]
        for other in ({"filters": {"stock": 0}}, {"search": "tea"}, {"order_by": ["-name"]}):
            assert (await alice.call("product_list", cursor=cursor, **other))["isError"]
        assert (await alice.call("category_list", cursor=cursor))["isError"]
        for at in (0, len(cursor) // 2, len(cursor) - 1):
            changed = cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]
            assert (await alice.call("product_list", limit=2, cursor=changed))["isError"]

    def test_limits_keys_and_lists_of_names_are_bounded_and_typed(
        self, alice: PipelineClient, subtests: pytest.Subtests
    ) -> None:
        async def check(limit: Any) -> None:
            result = await alice.call("product_list", limit=limit)
            assert result["isError"]
            assert "limit" in result["content"][0]["text"]

        for limit in (0, -1, 101, 10**18, 1.5, "5", None, True):
            with subtests.test(limit=limit):
                async_to_sync(check)(limit)

        async def check(pk: Any) -> None:
            for tool in ("product_get", "order_get", "category_get"):
                result = await alice.call(tool, pk=pk)
                assert result["isError"]
                assert "Internal error" not in result["content"][0]["text"]

        for pk in ("1 OR 1=1", "", None, [], {}, 2**63 - 1, -(2**63), "\x00", "💥", 1.5, True):
            with subtests.test(pk=pk):
                async_to_sync(check)(pk)

        async def check(names: Any) -> None:
            for argument in ("fields", "order_by"):
                assert (await alice.call("product_list", **{argument: names}))["isError"]

        for names in (["name"] * 500, ["name", 1], "name", {"name": 1}):
            with subtests.test(names=names):
                async_to_sync(check)(names)

    async def test_an_argument_outside_of_the_schema_is_refused(self, alice: PipelineClient) -> None:
        for name in ("queryset", "using", "model", "user", "owner", "raw", "extra", "where", "annotations", "ctx"):
            result = await alice.call("product_list", **{name: "x"})
            assert result["isError"]
            assert name in result["content"][0]["text"]
