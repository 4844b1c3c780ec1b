"""Row permissions: a caller reaches only rows that the backends permit."""

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from mcp_django import Context, ModelInline, ModelToolset, action
from mcp_django.orm.row_permissions import MAX_CHECKED_ROWS, iter_object_backends
from tests.orm.object_backends import CONSTRAINTS, FILTER, GRANTS, MODEL_BACKEND, LoginOnly, grant, object_permissions
from tests.orm.writing import as_user, call, get_error, get_result, user
from tests.shop.models import Category, Line, Order, Product, Tag
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
STATED = ("some", FILTER)


class Categories(ModelToolset):
    model = Category
    fields = ("slug", "name", "parent", "products")
    search_fields = ("name",)
    list_filter = "__all__"
    label_field = "name"
    tools = ("describe", "list", "get", "count", "aggregate", "create", "update", "delete", "history")


class Tags(ModelToolset):
    model = Tag
    fields = ("name",)
    tools = ("list", "get", "create")


class ProductLines(ModelInline):
    model = Line
    name = "lines"
    fields = ("quantity",)


class Products(ModelToolset):
    model = Product
    fields = ("name", "category", "category__name", "tags", "stock")
    search_fields = ("name", "category__name")
    list_filter = "__all__"
    inlines = (ProductLines,)
    tools = ("list", "get", "count", "aggregate", "create", "update", "delete", "history")

    @action
    def empty(self, ctx: Context, queryset: Any) -> int:
        return int(queryset.update(stock=0))


class Lines(ModelToolset):
    model = Line
    fields = ("product", "quantity")


TOOLSETS = (Categories, Tags, Products, Lines)


@pytest.fixture
def rows() -> None:
    north = Category.objects.create(slug="north", name="North")
    south = Category.objects.create(slug="south", name="South")
    for name, category, stock in (("Tea", north, 1), ("Rum", south, 2), ("Ale", south, 4)):
        Product.objects.create(name=name, category=category, stock=stock)


@pytest.fixture(params=STATED)
def north(request: pytest.FixtureRequest, rows: None) -> Iterator[User]:
    """A user with permissions on the northern rows only."""
    with object_permissions(request.param):
        for verb in ("view", "add", "change", "delete"):
            grant("north", f"shop.{verb}_product", category_id="north")
            grant("north", f"shop.{verb}_category", slug="north")
        yield User.objects.create_user("north")


def pk(name: str) -> int:
    return int(Product.objects.get(name=name).pk)


def test_a_backend_with_object_permissions_serves_no_rows_until_the_project_states_their_meaning(rows: None) -> None:
    with object_permissions(None):
        grant("north", "shop.view_product", category_id="north")
        who = User.objects.create_user("north")
        for tool, arguments in (("list", {}), ("count", {}), ("aggregate", {}), ("get", {"pk": pk("Tea")})):
            with pytest.raises(Exception, match="Unknown tool"):
                call(as_user(who, *TOOLSETS), f"product_{tool}", **arguments)


def test_toolsets_with_hooks_and_rows_of_their_own_need_no_statement(rows: None) -> None:
    class Own(Products):
        def get_queryset(self, ctx: Context) -> Any:
            return Product.objects.filter(category="north")

        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            return obj is None or bool(obj.category_id == "north")

    class Hooked(Products):
        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            return True

    class Inherited(Products):
        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            return super().has_view_permission(ctx, obj) or obj is None

        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx)

    class Narrowed(Products):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).filter(stock__gt=0)

        def has_change_permission(self, ctx: Context, obj: Any = None) -> bool:
            return True

    with object_permissions(None):
        who = User.objects.create_user("north")
        assert get_result(as_user(who, Own), "product_count")["count"] == 1
        assert get_result(as_user(who, Hooked), "product_count")["count"] == 3
        assert "no product" in get_error(as_user(who, Inherited), "product_get", pk=pk("Tea"))
        assert "no product" in get_error(as_user(who, Narrowed), "product_update", pk=pk("Tea"), values={"stock": 9})


def test_superusers_and_the_local_principal_see_all_rows(subtests: pytest.Subtests, rows: None) -> None:
    for stated in (None, *STATED):
        with subtests.test(stated=stated), rolled_back(), object_permissions(stated):
            root = User.objects.create_user("root", is_superuser=True)
            assert get_result(as_user(root, *TOOLSETS), "product_count")["count"] == 3


def test_all_applies_a_permission_without_an_object_to_every_row(rows: None) -> None:
    with object_permissions("all"):
        grant("north", "shop.view_product", category_id="north")
        assert get_result(as_user(User.objects.create_user("north"), Products), "product_count")["count"] == 3


def test_reading_shows_counts_and_groups_only_rows_with_the_permission(north: User) -> None:
    peer = as_user(north, *TOOLSETS)
    (row,) = get_result(peer, "product_list", with_total=True)["items"]
    assert (row["name"], row["category"]["label"], row["category__name"]) == ("Tea", "North", "North")
    assert get_result(peer, "product_list", with_total=True)["total"] == 1
    assert get_result(peer, "product_count")["count"] == 1
    metrics = [{"function": "sum", "field": "stock"}]
    assert get_result(peer, "product_aggregate", metrics=metrics)["groups"] == [{"sum_stock": 1}]
    assert get_result(peer, "product_get", pk=pk("Tea"))["name"] == "Tea"
    assert "no product" in get_error(peer, "product_get", pk=pk("Rum"))
    assert "no product" in get_error(peer, "product_history", pk=pk("Rum"))


def test_filters_search_order_and_relations_do_not_reach_rows_without_the_permission(north: User) -> None:
    Product.objects.filter(name="Tea").update(category="south")
    grant("north", "shop.view_product", name="Tea")
    peer = as_user(north, *TOOLSETS)
    (row,) = get_result(peer, "product_list", order_by=["category__name"])["items"]
    assert (row["category"], row["category__name"]) == (None, None)
    for arguments in (
        {"filters": {"category__name": "South"}},
        {"filters": {"category": "south"}},
        {"search": "South"},
    ):
        assert get_result(peer, "product_count", **arguments)["count"] == 0
    (category,) = get_result(peer, "category_list")["items"]
    assert category["products"] == []
    assert get_result(peer, "category_count", filters={"products__isnull": False})["count"] == 0


def test_writes_reach_only_rows_with_the_permission_of_the_action(north: User) -> None:
    grant("north", "shop.view_product", name="Rum")
    peer = as_user(north, *TOOLSETS)
    assert get_result(peer, "product_update", pk=pk("Tea"), values={"stock": 5})["item"]["stock"] == 5
    assert "You may not do this" in get_error(peer, "product_update", pk=pk("Rum"), values={"stock": 5})
    assert "You may not do this" in get_error(peer, "product_delete", pk=pk("Rum"))
    assert "You may not do this" in get_error(peer, "product_empty", pks=[pk("Tea"), pk("Rum")])
    assert "no product" in get_error(peer, "product_empty", pks=[pk("Ale")])
    assert "no product" in get_error(peer, "product_delete", pk=pk("Ale"), dry_run=True)
    assert sorted(Product.objects.values_list("stock", flat=True)) == [2, 4, 5]


def test_a_row_is_neither_added_nor_moved_to_values_without_the_permission(north: User) -> None:
    grant("north", "shop.view_category", slug="south")
    peer = as_user(north, *TOOLSETS)
    added = get_result(peer, "product_create", values={"name": "Milk", "category": "north"})
    assert added["item"]["name"] == "Milk"
    assert "nothing was changed" in get_error(peer, "product_create", values={"name": "Gin", "category": "south"})
    text = get_error(peer, "product_update", pk=pk("Tea"), values={"category": "south"})
    assert "nothing was changed" in text
    assert not Product.objects.filter(name="Gin").exists()
    assert Product.objects.get(name="Tea").category_id == "north"


def test_a_reference_to_a_row_without_the_permission_is_refused_like_an_unknown_row(north: User) -> None:
    peer = as_user(north, *TOOLSETS)
    known = get_error(peer, "product_create", values={"name": "Gin", "category": "south"})
    assert known == get_error(peer, "product_create", values={"name": "Gin", "category": "nowhere"}).replace(
        "nowhere", "south"
    )


def test_inline_rows_have_the_permissions_of_their_model(north: User) -> None:
    order = Order.objects.create(owner=north, reference="A1")
    shown, hidden = (Line.objects.create(order=order, product_id=pk("Tea"), quantity=n) for n in (1, 100))
    for verb in ("view", "change", "delete"):
        grant("north", f"shop.{verb}_line", quantity__lt=50)
    peer = as_user(north, *TOOLSETS)
    assert [row["pk"] for row in get_result(peer, "product_get", pk=pk("Tea"))["lines"]["items"]] == [shown.pk]
    for changes in ({"delete": [hidden.pk]}, {"change": [{"pk": hidden.pk, "values": {"quantity": 2}}]}):
        assert call(peer, "product_update", pk=pk("Tea"), inlines={"lines": changes})["isError"]
    moved = {"change": [{"pk": shown.pk, "values": {"quantity": 60}}]}
    assert "nothing was changed" in get_error(peer, "product_update", pk=pk("Tea"), inlines={"lines": moved})


def test_a_deletion_neither_takes_along_nor_changes_nor_counts_rows_without_the_permission(north: User) -> None:
    Category.objects.create(slug="hidden", name="Hidden", parent_id="north")
    peer = as_user(north, *TOOLSETS)
    assert "products (1)" in get_error(peer, "category_delete", pk="north")
    GRANTS["north"]["shop.view_product"] = [{"name": "Nothing"}]
    text = get_error(peer, "category_delete", pk="north")
    assert text.endswith("because rows that refer to it forbid it. Delete or move them first")
    Product.objects.filter(category="north").update(category=None)
    text = get_error(peer, "category_delete", pk="north")
    assert text.endswith("more would be deleted with it: rows that you may not delete")
    assert Category.objects.filter(slug="hidden").exists()


def test_lists_contain_the_tools_for_which_some_row_has_the_permission(rows: None) -> None:
    with object_permissions(FILTER, MODEL_BACKEND, CONSTRAINTS):
        grant("north", "shop.view_product", category_id="north")
        grant("north", "shop.change_product", category_id="nowhere")
        GRANTS["north"]["shop.view_category"] = []
        peer = as_user(User.objects.create_user("north"), Products, Categories)
        names = async_to_sync(peer.names)()
        assert {"product_list", "product_get", "product_update"} <= set(names)
        assert not {"product_delete", "category_list"} & set(names)
        with pytest.raises(Exception, match="Unknown tool"):
            call(peer, "product_delete", pk=pk("Tea"))


def test_rows_are_checked_one_by_one_up_to_a_bound(rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.orm.row_permissions.MAX_CHECKED_ROWS", 3)
    with object_permissions("some"):
        grant("north", "shop.view_product", category_id="north")
        peer = as_user(User.objects.create_user("north"), Products)
        assert get_result(peer, "product_count")["count"] == 1
        Product.objects.create(name="Gin")
        assert "too many to check" in get_error(peer, "product_count")
    assert MAX_CHECKED_ROWS == 1000


def test_a_yes_of_a_backend_about_models_is_enough_to_add_a_row(rows: None) -> None:
    """A new row has no permissions of its own yet, as with django-guardian."""
    with object_permissions(FILTER, MODEL_BACKEND, CONSTRAINTS):
        who = user("adder", "shop.add_product")
        added = get_result(as_user(who, Products), "product_create", values={"name": "Gin"})
        assert added["item"] is None


def test_only_backends_with_permission_methods_of_their_own_need_a_statement(subtests: pytest.Subtests) -> None:
    login = f"{LoginOnly.__module__}.LoginOnly"
    known = f"{MODEL_BACKEND.rpartition('.')[0]}.RemoteUserBackend"
    for backends, expected in (((MODEL_BACKEND,), []), ((MODEL_BACKEND, login, known), []), ((CONSTRAINTS,), [1])):
        with subtests.test(backends=backends), object_permissions(None, *backends):
            assert len(list(iter_object_backends())) == len(expected)
