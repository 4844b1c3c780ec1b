"""`create_form` and `update_form`: the fields of a row for its user, without writing."""

from typing import Any

import pytest

from mcp_django import Context, ModelToolset
from mcp_django.schema import DeclarationError
from tests.orm.toolsets import shop
from tests.orm.writing import as_user, call, get_error, get_result, user
from tests.shop.models import Category, Product

pytestmark = pytest.mark.django_db


class Categories(ModelToolset):
    model = Category
    fields = ["slug", "name", "parent"]
    search_fields = ["name"]
    label_field = "name"
    tools = ["describe", "list"]


class Products(ModelToolset):
    model = Product
    fields = ["name", "category", "stock", "status", "price"]
    readonly_fields = ["price"]
    tools = ["describe", "get", "create", "update"]
    app = True


def get_fields(form: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in form["fields"]}


def test_a_new_row_has_the_writable_fields_with_defaults_and_suggestions() -> None:
    client = as_user(user(), Categories, Products)
    form = get_result(client, "product_create_form", values={"name": "Tea"})
    fields = get_fields(form)
    assert (form["tool"], form["title"], list(fields)) == (
        "product_create",
        "Product",
        ["name", "category", "stock", "status"],
    )
    assert (fields["name"]["required"], fields["name"]["suggested"], fields["name"]["value"]) == (True, "Tea", None)
    assert (fields["stock"]["value"], fields["status"]["value"]) == (0, "active")
    assert fields["status"]["choices"][0] == {"value": "draft", "label": "Draft"}
    assert Product.objects.count() == 0


def test_a_row_has_its_values_its_version_and_the_tool_that_finds_related_rows() -> None:
    tea = Product.objects.create(name="Tea", category=Category.objects.create(slug="hot", name="Hot drinks"))
    client = as_user(user(), Categories, Products)
    form = get_result(client, "product_update_form", pk=tea.pk)
    category = get_fields(form)["category"]
    assert (category["value"], category["label"], category["search_tool"]) == ("hot", "Hot drinks", "category_list")
    saved = get_result(client, form["tool"], pk=form["pk"], if_match=form["if_match"], values={"name": "Green tea"})
    assert saved["item"]["name"] == "Green tea"
    assert call(client, form["tool"], pk=form["pk"], if_match=form["if_match"], values={"name": "x"})["isError"]


def test_values_that_are_no_fields_are_refused() -> None:
    problem = get_error(as_user(user(), Products), "product_create_form", values={"price": "1.00"})
    assert problem == "values: 'price' is no field of this form; use name, category, stock, status"


def test_a_form_needs_the_permission_of_its_write() -> None:
    tea = Product.objects.create(name="Tea")
    client = as_user(user("val", "shop.view_product", "shop.add_product"), Categories, Products)
    described = get_result(client, "product_describe")
    assert "product_create_form" in described["tools"]
    assert "product_update_form" not in described["tools"]
    assert "search_tool" not in get_fields(get_result(client, "product_create_form"))["category"]
    assert "Unknown tool" in str(call_error(client, "product_update_form", pk=tea.pk))


def call_error(client: Any, tool: str, **arguments: Any) -> Exception:
    with pytest.raises(Exception) as problem:  # noqa: PT011 - the class depends on the era
        call(client, tool, **arguments)
    return problem.value


def test_values_are_for_those_who_may_view_the_row() -> None:
    tea = Product.objects.create(name="Tea")
    form = get_result(as_user(user("cat", "shop.change_product"), Products), "product_update_form", pk=tea.pk)
    assert {field["value"] for field in form["fields"]} == {None}
    assert (form["pk"], form["if_match"]) == (tea.pk, None)


def test_a_row_of_another_user_does_not_exist() -> None:
    class Own(Products):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).none()

    tea = Product.objects.create(name="Tea")
    assert "no product" in get_error(as_user(user(), Own), "product_update_form", pk=tea.pk).lower()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"app": "yes"}, "app = 'yes' is invalid"),
        ({"app": True, "tools": ["list"]}, "requires the tool 'describe'"),
        ({"tools": ["describe", "create_form"]}, "the tool 'create_form' requires 'create'"),
        ({"app": True, "tools": ["describe", "create"], "confirm": ["create_form"]}, "confirm names 'create_form'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], problem: str) -> None:
    kind = type("Wrong", (ModelToolset,), {"model": Category, "fields": ["name"], **options})
    with pytest.raises(DeclarationError, match=problem):
        shop(kind)


def test_apps_need_the_tools_of_one_model(settings: Any) -> None:
    settings.MCP = {**settings.MCP, "ORM_STYLE": "generic"}
    with pytest.raises(DeclarationError, match="ORM_STYLE = 'per_model'"):
        shop(Products)
