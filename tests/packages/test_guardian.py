"""django-guardian: each user sees and writes the rows that were assigned to them or to their groups."""

from collections.abc import Iterator

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, User
from guardian.shortcuts import assign_perm, remove_perm

from mcp_django.auth.principal import invalidate_permissions
from tests.orm.object_backends import MODEL_BACKEND, object_permissions
from tests.orm.test_row_permissions import Categories, Products
from tests.orm.writing import as_user, call, get_error, get_result, user
from tests.recipes.pages import Recipe, settings_with
from tests.shop.models import Category, Product

pytestmark = pytest.mark.django_db
GUARDIAN = "guardian.backends.ObjectPermissionBackend"
FILTER = "mcp_django.orm.row_filters.filter_by_guardian"


@pytest.fixture
def tea() -> Product:
    drinks = Category.objects.create(slug="drinks", name="Drinks")
    Product.objects.create(name="Rum", category=drinks)
    return Product.objects.create(name="Tea", category=drinks)


@pytest.fixture(autouse=True)
def guardian() -> Iterator[None]:
    with object_permissions(FILTER, MODEL_BACKEND, GUARDIAN):
        yield


def test_rows_assigned_to_a_user_or_to_a_group_are_served(tea: Product) -> None:
    sue, sales = User.objects.create_user("sue"), Group.objects.create(name="Sales")
    peer = as_user(sue, Products, Categories)
    assert async_to_sync(peer.names)() == []
    sales.user_set.add(sue)
    assign_perm("shop.view_product", sales, tea)
    assign_perm("shop.change_product", sue, tea)
    invalidate_permissions()
    (row,) = get_result(peer, "product_list")["items"]
    assert (row["name"], row["category"]) == ("Tea", None)
    assert get_result(peer, "product_update", pk=tea.pk, values={"stock": 3})["item"]["stock"] == 3
    rum = Product.objects.get(name="Rum")
    assert "no product" in get_error(peer, "product_update", pk=rum.pk, values={"stock": 3})
    assert "product_delete" not in async_to_sync(peer.names)()


def test_a_revoked_permission_ends_the_access(tea: Product) -> None:
    sue = User.objects.create_user("sue")
    assign_perm("shop.view_product", sue, tea)
    peer = as_user(sue, Products)
    assert get_result(peer, "product_count")["count"] == 1
    remove_perm("shop.view_product", sue, tea)
    assert get_result(peer, "product_count")["count"] == 0


def test_a_permission_on_the_model_does_not_apply_to_single_rows_as_in_has_perm(tea: Product) -> None:
    sue = user("sue", "shop.view_product")
    assert not sue.has_perm("shop.view_product", tea)
    assert get_result(as_user(sue, Products), "product_count")["count"] == 0


def test_a_row_is_added_by_a_permission_on_the_model(tea: Product) -> None:
    sue = user("sue", "shop.add_product")
    added = get_result(as_user(sue, Products), "product_create", values={"name": "Gin"})
    assert Product.objects.get(name="Gin").pk == added["pk"]
    assert added["item"] is None
    with pytest.raises(Exception, match="Unknown tool"):
        call(as_user(User.objects.create_user("tim"), Products), "product_create", values={"name": "Ale"})


def test_without_the_statement_no_rows_are_served(tea: Product) -> None:
    sue = user("sue", "shop.view_product")
    with object_permissions(None, MODEL_BACKEND, GUARDIAN):
        assert async_to_sync(as_user(sue, Products).names)() == []


def test_the_code_of_the_recipe_runs(tea: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = settings_with("guardian", "filter_by_guardian")
    assert setting["ORM"]["OBJECT_PERMISSIONS"] == FILTER
    sue = user("sue", "shop.add_product")
    client = Recipe("guardian", "class Products", monkeypatch).client(sue)
    added = async_to_sync(client.call_tool)("product_create", {"values": {"name": "Gin"}})
    assert added["structuredContent"]["item"]["name"] == "Gin"
