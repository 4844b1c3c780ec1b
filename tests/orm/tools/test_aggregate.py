"""`aggregate`: groups, functions, and limits."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django import Context, ModelToolset
from tests.orm.toolsets import Categories, Orders, Products, Tags, data, peer
from tests.shop.models import Category, Line, Order, Product, Supplier

pytestmark = pytest.mark.django_db


class Counted(Products):
    tools = ["aggregate"]


class CountedOrders(Orders):
    tools = ["aggregate"]


@pytest.fixture
def stock(db: Any) -> None:
    drinks, food = (Category.objects.create(slug=name.lower(), name=name) for name in ("Drinks", "Food"))
    rows = [
        ("Tea", drinks, "4.50", 3, dt.date(2025, 1, 5)),
        ("Coffee", drinks, "7.25", 5, dt.date(2026, 1, 9)),
        ("Bread", food, "2.00", 0, dt.date(2026, 2, 1)),
        ("Loose", None, "1.00", 7, None),
    ]
    for name, category, price, number, day in rows:
        Product.objects.create(name=name, category=category, price=Decimal(price), stock=number, released=day)


async def groups(**arguments: Any) -> list[dict[str, Any]]:
    client = peer(Categories, Tags, Counted)
    found = await data(client, "product_aggregate", **arguments)
    return list(found["groups"])


async def test_counts_extremes_and_limits_of_groups(stock: None) -> None:
    assert await groups() == [{"count": 4}]
    assert await groups(filters={"stock__gt": 100}) in ([], [{"count": 0}])

    metrics = [{"function": "min", "field": "released"}, {"function": "count", "field": "status", "distinct": True}]
    assert await groups(metrics=metrics) == [{"min_released": "2025-01-05", "count_distinct_status": 1}]

    found = await data(peer(Categories, Tags, Counted), "product_aggregate", group_by=["name"], limit=2)
    assert found["truncated"]
    assert [group["name"] for group in found["groups"]] == ["Bread", "Coffee"]


async def test_an_aggregate_without_groups_is_one_row_also_of_an_empty_table(db: Any) -> None:
    metrics = [{"function": "count"}, {"function": "sum", "field": "price"}]
    assert await groups(metrics=metrics) == [{"count": 0, "sum_price": None}]


async def test_groups_by_a_relation_are_labelled(stock: None) -> None:
    drinks = {"pk": "drinks", "label": "Drinks", "uri": "shop.category://drinks"}
    found = await groups(
        group_by=["category"],
        metrics=[{"function": "count"}, {"function": "sum", "field": "price"}, {"function": "avg", "field": "stock"}],
        order_by=["-count"],
    )
    assert found[0] == {"category": drinks, "count": 2, "sum_price": "11.75", "avg_stock": 4.0}
    assert [group["category"] and group["category"]["pk"] for group in found] == ["drinks", "food", None]


async def test_groups_have_no_uri_if_rows_have_none(stock: None) -> None:
    class Unread(Categories):
        resources = False

    found = await data(peer(Unread, Counted), "product_aggregate", group_by=["category"])
    assert found["groups"][0]["category"] == {"pk": "drinks", "label": "Drinks"}


async def test_groups_by_a_path_and_by_parts_of_dates(stock: None) -> None:
    assert await groups(group_by=["category__name"], filters={"category__isnull": False}) == [
        {"category__name": "Drinks", "count": 2},
        {"category__name": "Food", "count": 1},
    ]
    assert await groups(group_by=["released__year"], filters={"released__isnull": False}) == [
        {"released__year": 2025, "count": 1},
        {"released__year": 2026, "count": 2},
    ]


async def test_metrics_can_have_names_and_filter_groups(stock: None) -> None:
    found = await groups(
        group_by=["category__name"],
        metrics=[{"function": "max", "field": "price", "name": "dearest"}, {"function": "count"}],
        having={"dearest__gte": "2.00"},
        order_by=["-dearest"],
        limit=1,
    )
    assert found == [{"category__name": "Drinks", "dearest": "7.25", "count": 2}]


def test_invalid_aggregates_are_refused(db: Any, subtests: pytest.Subtests) -> None:
    async def check(arguments: dict[str, Any], message: str) -> None:
        assert message in await peer(Categories, Tags, Counted).error("product_aggregate", **arguments)

    cases = (
        ({"group_by": ["cost"]}, "unknown field to group or sum by 'cost'"),
        ({"group_by": ["supplier__bank_account"]}, "unknown field to group or sum by 'supplier__bank_account'"),
        ({"group_by": ["tags"]}, "unknown field to group or sum by 'tags'"),
        ({"group_by": ["name__year"]}, "name has no year"),
        ({"metrics": [{"function": "sum", "field": "cost"}]}, "unknown field to group or sum by 'cost'"),
        ({"metrics": [{"function": "sum", "field": "name"}]}, "sum does not apply to name, which is text"),
        ({"metrics": [{"function": "avg"}]}, "avg requires a field"),
        ({"metrics": [{"function": "count"}, {"function": "count"}]}, "two results are named 'count'"),
        ({"having": {"cost__gt": 1}}, "unknown metric in having 'cost'"),
        ({"having": {"count__regex": "1"}}, "does not support the lookup 'regex'"),
        ({"having": {"count__gte": "many"}}, "having: count__gte: give an integer"),
        ({"order_by": ["-cost"]}, "unknown name to order groups by 'cost'; did you mean 'count'?; there are: count"),
        ({"group_by": ["name"] * 5}, "group_by: has more items than the maximum of 4"),
    )
    for arguments, message in cases:
        with subtests.test(arguments=arguments, message=message):
            async_to_sync(check)(arguments, message)


async def test_a_hidden_row_groups_like_null(stock: None) -> None:
    class Mine(Categories):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).filter(slug="food")

    found = await data(peer(Mine, Tags, Counted), "product_aggregate", group_by=["category", "category__name"])
    assert [(g["category"] and g["category"]["pk"], g["category__name"], g["count"]) for g in found["groups"]] == [
        ("food", "Food", 1),
        (None, None, 3),
    ]


async def test_distinct_and_annotated_querysets_are_counted_once_for_each_row(stock: None, admin_user: Any) -> None:
    class Busy(ModelToolset):
        model = Product
        fields = ["name", "stock"]
        tools = ["aggregate", "count", "list"]

        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).filter(lines__quantity__gte=1).distinct()

    order = await Order.objects.acreate(owner=admin_user, reference="1")
    tea = await Product.objects.aget(name="Tea")
    for number in (1, 2):
        await Line.objects.acreate(order=order, product=tea, quantity=number)
    client = peer(Busy)
    assert (await data(client, "product_count"))["count"] == 1
    metrics = [{"function": "sum", "field": "stock"}]
    assert (await data(client, "product_aggregate", metrics=metrics))["groups"] == [{"sum_stock": 3}]
    assert len((await data(client, "product_list"))["items"]) == 1


def test_sums_and_averages_work_on_every_database(stock: None, subtests: pytest.Subtests) -> None:
    """PostgreSQL returns numeric for the sum of a key, and Django does not convert it."""

    class Suppliers(ModelToolset):
        model = Supplier
        fields = ["name"]

        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).exclude(name="hidden")

    class Counted(ModelToolset):
        model = Product
        fields = ["name", "supplier", "supplier__pk", "stock"]
        list_filter = "__all__"
        tools = ["aggregate"]

    suppliers = [Supplier.objects.create(name=name) for name in ("seen", "seen too", "hidden")]
    products = Product.objects.order_by("pk")
    for product, supplier in zip(products, suppliers, strict=False):
        Product.objects.filter(pk=product.pk).update(supplier=supplier)
    keys = [product.pk for product in products]
    visible = [suppliers[0].pk, suppliers[1].pk]
    expected = {"pk": keys, "supplier": visible, "supplier__pk": visible, "stock": [3, 5, 0, 7]}

    for served in ((Counted, Suppliers), (Counted,)):
        for field, values in expected.items():
            if Suppliers not in served and field == "supplier":
                values = [supplier.pk for supplier in suppliers]
            elif Suppliers not in served and field == "supplier__pk":
                continue  # a path needs a toolset
            with subtests.test(field=field, is_masked=Suppliers in served):
                metrics = [{"function": function, "field": field} for function in ("sum", "avg", "min", "max")]
                given = {"metrics": metrics, "having": {f"avg_{field}__gte": 0.5, f"sum_{field}__gte": 1}}
                (found,) = async_to_sync(data)(peer(*served), "product_aggregate", **given)["groups"]
                assert found == {
                    f"sum_{field}": sum(values),
                    f"avg_{field}": pytest.approx(sum(values) / len(values)),
                    f"min_{field}": min(values),
                    f"max_{field}": max(values),
                }
                assert {type(value) for value in found.values()} <= {int, float}
