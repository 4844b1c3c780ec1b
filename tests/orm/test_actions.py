"""`@action`: methods of a toolset for rows that a client names."""

from typing import Any, Literal

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin.models import LogEntry
from django.db import transaction
from django.db.models import F, QuerySet

from mcp_django import Context, Principal, ToolError, action
from mcp_django.schema import DeclarationError
from tests.orm.toolsets import shop
from tests.orm.writing import Products, as_user, call, get_error, get_result, user
from tests.server.client import PipelineClient
from tests.shop.models import Product

pytestmark = pytest.mark.django_db


@action(permissions=["view"])
def shout(toolset: Products, obj: Product) -> str:
    """The name, loudly."""
    assert toolset.model is Product
    return obj.shout()


class Stocked(Products):
    actions = (shout,)

    @action(dry_run=True)
    def restock(self, ctx: Context, queryset: "QuerySet[Product]", by: int = 1) -> dict[str, int]:
        """Put more on the shelf.

        Args:
            by: How many of each.
        """
        return {"changed": queryset.update(stock=F("stock") + by)}

    @action(permissions=["retire"], confirm=True)
    def retire(self, ctx: Context, obj: Product, why: Literal["old", "bad"]) -> None:
        """Take it off the shelf."""
        obj.status = Product.Status.GONE
        obj.save()

    def has_retire_permission(self, ctx: Context, obj: Any = None) -> bool:
        return ctx.user.username == "sue" and (obj is None or obj.name != "Tea")

    @action(permissions=["shop.delete_product"])
    def total(self, who: Principal) -> int:
        """Three products in stock."""
        return Product.objects.count()


@pytest.fixture
def products() -> list[Product]:
    return [Product.objects.create(name=name, stock=3, secret_token="hunter2") for name in ("Tea", "Coffee")]


def test_an_action_receives_the_named_rows(products: list[Product]) -> None:
    pks = [product.pk for product in products]
    result = get_result(as_user(user(), Stocked), "product_restock", pks=pks, by=2)
    assert result == {"result": {"changed": 2}, "rows": 2, "dry_run": False}
    assert set(Product.objects.values_list("stock", flat=True)) == {5}
    assert sorted(LogEntry.objects.values_list("object_id", "change_message")) == [
        (str(pk), "restock") for pk in sorted(pks)
    ]


def test_an_action_receives_the_context_and_the_caller(products: list[Product]) -> None:
    class Informed(Products):
        @action(permissions=["view"])
        def report(self, ctx: Context, who: Principal) -> list[bool]:
            """Report the caller."""
            return [isinstance(ctx, Context), ctx.principal is who]

    assert get_result(as_user(user(), Informed), "product_report")["result"] == [True, True]


def test_a_dry_run_of_an_action_changes_nothing(products: list[Product]) -> None:
    client = as_user(user(), Stocked)
    result = get_result(client, "product_restock", pks=[products[0].pk], dry_run=True)
    assert result["dry_run"] is True
    assert set(Product.objects.values_list("stock", flat=True)) == {3}
    assert not LogEntry.objects.exists()
    # An action without the option has no dry run.
    assert "dry_run" in get_error(client, "product_shout", pk=products[0].pk, dry_run=True)


def test_an_idempotency_key_runs_an_action_once(products: list[Product]) -> None:
    client = as_user(user(), Stocked)
    pks = [product.pk for product in products]
    assert call(client, "product_restock", pks=pks, idempotency_key="k") == call(
        client, "product_restock", pks=pks, idempotency_key="k"
    )
    assert set(Product.objects.values_list("stock", flat=True)) == {4}


def test_functions_can_be_actions(products: list[Product]) -> None:
    assert get_result(as_user(user(), Stocked), "product_shout", pk=products[0].pk)["result"] == "TEA"


def test_one_forbidden_row_stops_the_whole_action(products: list[Product]) -> None:
    class Careful(Stocked):
        def has_change_permission(self, ctx: Context, obj: Any = None) -> bool:
            return obj is None or obj.name != "Tea"

        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).exclude(name="Hidden")

    client = as_user(user(), Careful)
    hidden = Product.objects.create(name="Hidden", stock=3)
    text = get_error(client, "product_restock", pks=[product.pk for product in products])
    assert text == f"You may not do this to product Tea ({products[0].pk})"
    text = get_error(client, "product_restock", pks=[products[1].pk, hidden.pk])
    assert text.replace(str(hidden.pk), "…") == get_error(
        client, "product_restock", pks=[products[1].pk, 9999]
    ).replace("9999", "…")
    assert set(Product.objects.values_list("stock", flat=True)) == {3}


def test_an_action_has_permissions_of_its_own(products: list[Product]) -> None:
    from mcp_django.protocol.errors import InvalidParams

    tim = user("tim", "shop.view_product")
    names = set(async_to_sync(as_user(tim, Stocked).names)())
    assert names & {"product_restock", "product_total", "product_shout"} == {"product_shout"}
    with pytest.raises(InvalidParams, match="Unknown tool: product_retire"):
        call(as_user(tim, Stocked), "product_retire", pk=products[1].pk, why="old")
    client = as_user(user(), Stocked, answer=lambda method, params: {"action": "accept", "content": {}})
    assert "You may not do this" in get_error(client, "product_retire", pk=products[0].pk, why="old")
    get_result(client, "product_retire", pk=products[1].pk, why="old")
    assert get_result(client, "product_total")["result"] == 2


def test_a_confirmation_describes_the_action(products: list[Product]) -> None:
    asked: list[str] = []

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": "decline"}

    client = as_user(user(), Stocked, answer=answer)
    get_error(client, "product_retire", pk=products[1].pk, why="old")
    assert asked == [f"Retire: product Coffee ({products[1].pk})?\nwhy: old"]
    assert Product.objects.get(name="Coffee").status == "active"


def test_an_action_that_fails_is_rolled_back(products: list[Product]) -> None:
    class Refusing(Products):
        @action
        def spoil(self, queryset: "QuerySet[Product]") -> None:
            queryset.update(stock=0)
            raise ToolError("On second thoughts, no.")

        @action(atomic=False)
        def send(self, obj: Product) -> bool:
            blocks: Any = transaction.get_connection().atomic_blocks
            return any(not block._from_testcase for block in blocks)

    client = as_user(user(), Refusing)
    assert get_error(client, "product_spoil", pks=[products[0].pk]) == "On second thoughts, no."
    assert set(Product.objects.values_list("stock", flat=True)) == {3}
    assert get_result(client, "product_send", pk=products[0].pk, idempotency_key="k")["result"] is False


def test_arguments_are_validated_like_those_of_a_tool(products: list[Product]) -> None:
    client = as_user(user(), Stocked)
    assert "by" in get_error(client, "product_restock", pks=[products[0].pk], by="many")
    assert "pks" in get_error(client, "product_restock", pks=[])
    assert "pks" in get_error(client, "product_restock", pks=[1] * 101)
    tools = {tool["name"]: tool for tool in async_to_sync(client.request)("tools/list")["tools"]}
    schema = tools["product_restock"]["inputSchema"]["properties"]
    assert schema["by"]["description"] == "How many of each."
    assert tools["product_restock"]["description"] == "Put more on the shelf."
    assert tools["product_retire"]["inputSchema"]["required"] == ["pk", "why"]


def test_invalid_actions_are_refused_when_declared() -> None:
    async def later(self: Any, obj: Product) -> None: ...
    def both(self: Any, obj: Product, queryset: Any) -> None: ...
    def taken(self: Any, obj: Product, dry_run: bool) -> None: ...
    def asks(self: Any, obj: Product) -> None: ...
    def gives(self: Any, obj: Product) -> None: ...

    for declared, words in (
        (action(later), "must be a plain function"),
        (action(both), "not both"),
        (action(taken), "'dry_run' is reserved"),
        (action(permissions=["fly"])(asks), "has no has_fly_permission"),
        (action(dry_run=True, atomic=False)(gives), "requires a transaction"),
    ):
        with pytest.raises(DeclarationError, match=words):
            shop(type("Wrong", (Products,), {"act": declared}))
    with pytest.raises(DeclarationError, match="neither an action nor a writing tool"):
        shop(type("Wrong", (Products,), {"confirm": ["list"]}))
    for options, words in (
        ({"confirm": {"act": "always"}}, "must be True or 'strict'"),
        ({"confirm": {"act": "strict"}, "confirm_fallback": "proceed"}, "contradicts confirm_fallback"),
        ({"act": action(confirm="strict")(asks), "confirm_fallback": "proceed"}, "contradicts confirm_fallback"),
    ):
        with pytest.raises(DeclarationError, match=words):
            shop(type("Wrong", (Products,), {"act": action(gives), **options}))


def test_a_subclass_can_remove_an_action() -> None:
    server = shop(type("Less", (Stocked,), {"restock": None}))
    names = async_to_sync(PipelineClient(server).names)()
    assert "product_restock" not in names
    assert "product_retire" in names


def test_a_permission_hook_without_a_user_gets_an_error_with_the_remedy(products: list[Product]) -> None:
    client = PipelineClient(shop(Stocked))
    error = async_to_sync(client.error)("product_retire", pk=products[0].pk, why="old")
    assert "ctx.user is None" in error
    assert "LOCAL_USER" in error
