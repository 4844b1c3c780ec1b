"""`delete`: dependent rows, protected references, and permissions."""

from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth.models import User

from mcp_django import Context, ModelInline, ModelToolset
from tests.orm.writing import Categories, Orders, Products, as_user, get_error, get_result, user
from tests.shop.models import Category, Line, Order, Product

pytestmark = pytest.mark.django_db


@pytest.fixture
def drinks() -> Category:
    drinks = Category.objects.create(slug="drinks", name="Drinks")
    for name in ("teas", "juices"):
        Category.objects.create(slug=name, name=name.title(), parent=drinks)
    return drinks


def ordered(owner: User) -> Order:
    order = Order.objects.create(owner=owner, reference="A1")
    product = Product.objects.create(name="Tea", secret_token="hunter2")
    for quantity in (1, 2):
        Line.objects.create(order=order, product=product, quantity=quantity)
    return order


def test_a_row_is_deleted_with_its_dependent_rows(drinks: Category) -> None:
    result = get_result(as_user(user()), "category_delete", pk="drinks")
    assert result == {
        "pk": "drinks",
        "label": "category Drinks (drinks)",
        "deleted": {"categories": 2},
        "changed": {},
        "dry_run": False,
    }
    assert not Category.objects.exists()


def test_a_dry_run_is_marked_and_deletes_nothing(drinks: Category) -> None:
    result = get_result(as_user(user()), "category_delete", pk="drinks", dry_run=True)
    assert (result["deleted"], result["dry_run"]) == ({"categories": 2}, True)
    assert Category.objects.count() == 3
    assert not LogEntry.objects.exists()


def test_protected_references_prevent_a_deletion(drinks: Category) -> None:
    Product.objects.create(name="Tea", category=drinks, secret_token="hunter2")
    for dry_run in (False, True):
        text = get_error(as_user(user(f"sue{dry_run}")), "category_delete", pk="drinks", dry_run=dry_run)
        assert text == (
            "category Drinks (drinks) cannot be deleted, because rows that refer to it forbid it: products (1). "
            "Delete or move them first"
        )
    assert Category.objects.count() == 3


def test_dependent_rows_that_the_caller_cannot_view_are_not_named(drinks: Category) -> None:
    Product.objects.create(name="Tea", category=drinks)
    assert "other rows (1)" in get_error(as_user(user(), Categories), "category_delete", pk="drinks")
    mallory = user("mallory", "shop.delete_category", "shop.view_category")
    assert "other rows (1)" in get_error(as_user(mallory, Categories, Products), "category_delete", pk="drinks")


def test_dependent_rows_of_a_toolset_need_its_delete_permission() -> None:
    class Lines(ModelToolset):
        model = Line
        fields = ("product", "quantity")

    class AllOrders(ModelToolset):
        model = Order
        fields = ("reference",)
        tools = ("delete",)

    order = ordered(user())
    tim = user("tim", "shop.delete_order", "shop.view_line")
    text = get_error(as_user(tim, AllOrders, Lines), "order_delete", pk=str(order.pk))
    assert text.endswith("more would be deleted with it: lines that you may not delete (2)")
    assert Line.objects.count() == 2
    result = get_result(as_user(tim, AllOrders), "order_delete", pk=str(order.pk))
    assert result["deleted"] == {"other rows": 2}


def test_inlines_are_checked_for_the_delete_permission() -> None:
    class Kept(ModelInline):
        model = Line
        fields = ("quantity",)

        def has_delete_permission(self, ctx: Context, obj: Any = None) -> bool:
            return obj is None or obj.quantity > 1

    class Ordered(Orders):
        inlines = (Kept,)

    sue = user()
    order = ordered(sue)
    assert "lines that you may not delete (2)" in get_error(as_user(sue, Ordered), "order_delete", pk=str(order.pk))
    Line.objects.filter(quantity=1).delete()
    assert get_result(as_user(sue, Ordered), "order_delete", pk=str(order.pk))["deleted"] == {"lines": 1}


def test_delete_model_can_be_overridden(drinks: Category) -> None:
    class Archived(Categories):
        def delete_model(self, ctx: Context, obj: Any) -> None:
            Category.objects.filter(pk=obj.pk).update(name=f"{obj.name} (by {ctx.user})")

    get_result(as_user(user(), Archived), "category_delete", pk="drinks")
    drinks.refresh_from_db()
    assert drinks.name == "Drinks (by sue)"


def test_a_deletion_is_logged(drinks: Category) -> None:
    get_result(as_user(user()), "category_delete", pk="drinks")
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id, entry.object_repr) == (DELETION, "drinks", "Drinks")
    assert entry.user.get_username() == "sue"


def test_kept_rows_are_distinguished_from_deleted_ones() -> None:
    """SET_NULL changes rows and deletes none."""
    from django.contrib.auth.models import Group

    class Groups(ModelToolset):
        model = Group
        fields = ("name",)
        tools = ("delete",)

    group = Group.objects.create(name="editors")
    user("tim").groups.add(group)
    assert get_result(as_user(user(), Groups), "group_delete", pk=group.pk)["deleted"] == {}
