"""Inlines: rows shown with the row that they belong to, and written with it."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import Context, ModelInline, ModelToolset
from mcp_django.schema import DeclarationError
from tests.orm.toolsets import shop
from tests.orm.writing import (
    Categories,
    Lines,
    Orders,
    Products,
    as_user,
    get_error,
    get_field_errors,
    get_result,
    user,
)
from tests.shop.models import Category, Line, Order, Product

pytestmark = pytest.mark.django_db


@pytest.fixture
def sue() -> User:
    return user()


@pytest.fixture
def tea() -> Product:
    return Product.objects.create(name="Tea", secret_token="hunter2")


@pytest.fixture
def order(sue: User, tea: Product) -> Order:
    order = Order.objects.create(owner=sue, reference="A1")
    Line.objects.create(order=order, product=tea, quantity=1)
    return order


def test_get_includes_inlines(order: Order, sue: User, tea: Product) -> None:
    (line,) = Line.objects.all()
    row = get_result(as_user(sue), "order_get", pk=str(order.pk))
    shown = {"pk": tea.pk, "label": "Tea", "uri": f"shop.product://{tea.pk}"}
    assert row["lines"] == {"items": [{"pk": line.pk, "product": shown, "quantity": 1}], "more": False}
    assert "lines" not in get_result(as_user(sue), "order_get", pk=str(order.pk), fields=["reference"])


def test_inlines_are_created_with_their_row(sue: User, tea: Product) -> None:
    lines = [{"product": tea.pk, "quantity": 2}, {"product": tea.pk}]
    result = get_result(as_user(sue), "order_create", values={"reference": "A1"}, inlines={"lines": {"add": lines}})
    assert result["inlines"] == {"lines": {"added": 2, "changed": 0, "deleted": 0}}
    assert [line["quantity"] for line in result["item"]["lines"]["items"]] == [2, 1]
    order = Order.objects.get()
    assert (order.owner, order.lines.count()) == (sue, 2)


def test_inlines_are_changed_added_and_deleted_in_one_call(order: Order, sue: User, tea: Product) -> None:
    first, second = Line.objects.get(), Line.objects.create(order=order, product=tea, quantity=5)
    inlines = {
        "lines": {
            "change": [{"pk": first.pk, "values": {"quantity": 9}}],
            "delete": [second.pk],
            "add": [{"product": tea.pk, "quantity": 3}],
        }
    }
    result = get_result(as_user(sue), "order_update", pk=str(order.pk), inlines=inlines)
    assert result["inlines"] == {"lines": {"added": 1, "changed": 1, "deleted": 1}}
    assert sorted(order.lines.values_list("quantity", flat=True)) == [3, 9]
    (entry,) = LogEntry.objects.all()
    assert entry.get_change_message().count("line") == 3


def test_a_dry_run_covers_inlines(order: Order, sue: User) -> None:
    line = Line.objects.get()
    inlines = {"lines": {"delete": [line.pk]}}
    result = get_result(as_user(sue), "order_update", pk=str(order.pk), inlines=inlines, dry_run=True)
    assert result["item"]["lines"]["items"] == []
    assert Line.objects.exists()


def test_errors_name_the_inline_and_nothing_is_written(order: Order, sue: User, tea: Product) -> None:
    inlines = {"lines": {"add": [{"product": tea.pk}, {"product": 9999}], "delete": [4711]}}
    errors = get_field_errors(as_user(sue), "order_update", pk=str(order.pk), values={"note": "x"}, inlines=inlines)
    assert set(errors) == {"lines.add[1].product", "lines.delete[0]"}
    order.refresh_from_db()
    assert (order.note, order.lines.count()) == ("", 1)


def test_inlines_of_another_row_cannot_be_changed(order: Order, sue: User, tea: Product) -> None:
    other = Order.objects.create(owner=user("tim"), reference="B1")
    foreign = Line.objects.create(order=other, product=tea, quantity=7)
    client = as_user(sue)
    for inlines in (
        {"lines": {"delete": [foreign.pk]}},
        {"lines": {"change": [{"pk": foreign.pk, "values": {"quantity": 1}}]}},
    ):
        errors = get_field_errors(client, "order_update", pk=str(order.pk), inlines=inlines)
        (texts,) = errors.values()
        assert texts == [f"There is no line with pk {foreign.pk}."]
    text = get_error(
        client, "order_create", values={"reference": "C"}, inlines={"lines": {"add": [{"order": str(other.pk)}]}}
    )
    assert "unknown key 'order'" in text
    foreign.refresh_from_db()
    assert (foreign.quantity, foreign.order) == (7, other)


def test_inlines_need_permissions_of_their_own(order: Order, tea: Product) -> None:
    class All(Orders):
        tools = ("describe", *Orders.tools)

        def get_queryset(self, ctx: Context) -> Any:
            return Order.objects.all()

    line = Line.objects.get()
    tim = user("tim", "shop.view_order", "shop.change_order", "shop.view_product")
    client = as_user(tim, All, Products)
    assert "lines" not in get_result(client, "order_get", pk=str(order.pk))
    # They are not described to callers without the permission to view or add them.
    for changes in ({"add": [{"product": tea.pk}]}, {"delete": [line.pk]}):
        hidden = get_error(client, "order_update", pk=str(order.pk), inlines={"lines": changes})
        unknown = get_error(client, "order_update", pk=str(order.pk), inlines={"limes": changes})
        assert hidden == unknown.replace("limes", "lines")
    tom = user("tom", "shop.view_order", "shop.change_order", "shop.add_line")
    errors = get_field_errors(
        as_user(tom, All, Products), "order_update", pk=str(order.pk), inlines={"lines": {"delete": [line.pk]}}
    )
    assert errors == {"lines.delete[0]": [f"There is no line with pk {line.pk}."]}
    ann = user("ann", "shop.view_order", "shop.change_order", "shop.view_line")
    text = get_error(as_user(ann, All), "order_update", pk=str(order.pk), inlines={"lines": {"delete": [line.pk]}})
    assert "may not delete" in text


def test_the_toolset_of_their_model_limits_inlines(order: Order, sue: User, tea: Product) -> None:
    class Small(ModelToolset):
        model = Line
        fields = ("quantity",)

        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).filter(quantity__lt=5)

    Line.objects.create(order=order, product=tea, quantity=5)
    row = get_result(as_user(sue, Orders, Small), "order_get", pk=str(order.pk))
    assert [line["quantity"] for line in row["lines"]["items"]] == [1]


def test_the_number_of_inlines_is_limited(order: Order, sue: User, tea: Product) -> None:
    class Few(Lines):
        max_num = 2

    class Short(Orders):
        inlines = (Few,)

    client = as_user(sue, Short)
    add = {"lines": {"add": [{"product": tea.pk}, {"product": tea.pk}]}}
    assert "at most 2 rows" in get_error(client, "order_update", pk=str(order.pk), inlines=add)
    for _ in range(2):
        Line.objects.create(order=order, product=tea)
    lines = get_result(client, "order_get", pk=str(order.pk))["lines"]
    assert (len(lines["items"]), lines["more"]) == (2, True)


def test_deletion_of_inlines_can_be_disabled(order: Order, sue: User) -> None:
    class Kept(Lines):
        can_delete = False

    class Keeping(Orders):
        inlines = (Kept,)

    line = Line.objects.get()
    assert "delete" in get_error(
        as_user(sue, Keeping), "order_update", pk=str(order.pk), inlines={"lines": {"delete": [line.pk]}}
    )
    assert Line.objects.exists()


def test_a_version_covers_the_row_without_its_inlines(order: Order, sue: User) -> None:
    client = as_user(sue)
    seen = get_result(client, "order_get", pk=str(order.pk))["_version"]
    get_result(client, "order_update", pk=str(order.pk), values={"note": "x"}, if_match=seen)


def test_invalid_inlines_are_refused_when_declared() -> None:
    class Stray(ModelInline):
        model = Category
        fields = ("name",)

    class Secret(ModelInline):
        model = Product
        fields = ("secret_token",)

    class Twice(Orders):
        inlines = (Lines, Lines)

    class Nested(Orders):
        inlines = (type("Deep", (Lines,), {"inlines": [Lines]}),)

    for toolset, words in (
        (type("A", (Orders,), {"inlines": [Stray]}), "no foreign key to shop.Order"),
        (type("B", (Categories,), {"inlines": [Secret]}), "looks like a secret"),
        (Twice, "the name 'lines' is taken in its rows"),
        (Nested, "neither inlines nor actions"),
        (type("C", (Orders,), {"inlines": [Order]}), "not a ModelInline class"),
    ):
        with pytest.raises(DeclarationError, match=words):
            shop(toolset)


def test_schemas_describe_inlines(sue: User) -> None:
    tools = {tool["name"]: tool for tool in async_to_sync(as_user(sue).request)("tools/list")["tools"]}
    lines = tools["order_update"]["inputSchema"]["properties"]["inlines"]["properties"]["lines"]["properties"]
    assert set(lines) == {"add", "change", "delete"}
    assert lines["add"]["items"]["required"] == ["product"]
    assert set(tools["order_create"]["inputSchema"]["properties"]["inlines"]["properties"]["lines"]["properties"]) == {
        "add"
    }


def test_describe_names_inlines_to_permitted_callers(order: Order, sue: User) -> None:
    class Described(Orders):
        tools = ("describe", *Orders.tools)

    tim = as_user(user("tim", "shop.view_order", "shop.change_order"), Described, Products)
    assert "inlines" not in get_result(tim, "order_describe")
    assert "lines" not in str(async_to_sync(tim.request)("tools/list")).replace("inlines", "")

    sue_client = as_user(sue, Described, Products)
    lines = get_result(sue_client, "order_describe")["inlines"]["lines"]
    assert set(lines["row"]["properties"]) == {"pk", "product", "quantity"}
    assert set(lines["changes"]["properties"]) == {"add", "change", "delete"}
    assert lines["changes"]["properties"]["add"]["items"]["required"] == ["product"]
    for changes, problem in (
        ({"add": [{"quantity": 1}]}, "inlines.lines: add[0]: missing key 'product'"),
        ({"ad": []}, "inlines.lines: unknown argument 'ad'; did you mean 'add'?"),
    ):
        assert problem in get_error(sue_client, "order_update", pk=str(order.pk), inlines={"lines": changes})


@pytest.mark.skipif(not connection.features.has_select_for_update, reason="rows are locked where the database can")
def test_an_inline_is_locked_before_it_is_read(order: Order, sue: User) -> None:
    """Its own tools, which lock it and not the row above, would otherwise be written over."""
    change = [{"pk": Line.objects.get().pk, "values": {"quantity": 9}}]
    with CaptureQueriesContext(connection) as captured:
        get_result(as_user(sue), "order_update", pk=str(order.pk), inlines={"lines": {"change": change}})
    locks = [query["sql"] for query in captured if "FOR UPDATE" in query["sql"]]
    assert [sum(table in sql for sql in locks) for table in ('FROM "shop_order"', 'FROM "shop_line"')] == [1, 1]
