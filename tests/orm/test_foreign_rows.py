"""Writes never reach rows that the caller cannot see, by an existing key or by a cascade."""

from typing import Any

import pytest

from mcp_django import Context, ModelInline, ModelToolset
from tests.orm.writing import Categories, as_user, get_error, get_result, user
from tests.shop.models import Category, Line, Order, Product
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


def test_a_new_row_never_overwrites_a_hidden_one() -> None:
    """Django saves a row that has a primary key by an UPDATE first."""

    class Raced(Categories):
        def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
            Category.objects.create(slug=obj.slug, name="Somebody else's")
            super().save_model(ctx, obj, form, change)

    text = get_error(as_user(user(), Raced), "category_create", values={"slug": "drinks", "name": "Mine"})
    assert "already exists" in text
    assert not Category.objects.exists()  # both were in the transaction, which is gone


class OwnLines(ModelToolset):
    """Lines of the caller's orders."""

    model = Line
    fields = ("quantity",)

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).filter(order__owner=ctx.user)


class AllOrders(ModelToolset):
    model = Order
    fields = ("reference",)
    tools = ("delete",)


def of_bob() -> Order:
    order = Order.objects.create(owner=user("bob"), reference="A1")
    Line.objects.create(order=order, product=Product.objects.create(name="Tea"))
    return order


def test_a_deletion_never_deletes_hidden_rows_of_a_toolset(
    subtests: pytest.Subtests,
) -> None:
    for dry_run in (False, True):
        with subtests.test(dry_run=dry_run), rolled_back():
            order = of_bob()
            text = get_error(as_user(user(), AllOrders, OwnLines), "order_delete", pk=str(order.pk), dry_run=dry_run)
            assert text.endswith("more would be deleted with it: rows that you may not delete")
            assert Line.objects.exists()


def test_deleting_an_inline_checks_its_dependent_rows() -> None:
    class OrderInline(ModelInline):
        model = Order
        name = "orders"
        fields = ("reference",)

    class Users(ModelToolset):
        model = Order._meta.get_field("owner").related_model
        fields = ("username",)
        inlines = (OrderInline,)
        tools = ("update",)

    class Lines(ModelToolset):
        model = Line
        fields = ("quantity",)

        def has_delete_permission(self, ctx: Context, obj: Any = None) -> bool:
            return False

    order = of_bob()
    gone = {"pk": order.owner.pk, "inlines": {"orders": {"delete": [str(order.pk)]}}}
    text = get_error(as_user(user(), Users, Lines), "user_update", **gone)
    assert "lines that you may not delete (1)" in text
    assert Order.objects.exists()
    get_result(as_user(user("tim"), Users), "user_update", **gone)
    assert not Order.objects.exists()
