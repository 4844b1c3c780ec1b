"""Tools of forms, and results with rendered HTML."""

from collections.abc import Callable
from typing import Any

import pytest
from django import forms

from mcp_django import Context, Server
from mcp_django.contrib.apps import form_tool, render_result
from mcp_django.schema import DeclarationError
from mcp_django.testing import TestClient
from tests.shop.models import Product

MakeServer = Callable[..., Server]


class CartForm(forms.Form):
    title = forms.CharField(max_length=5)
    quantity = forms.IntegerField(min_value=1, required=False)
    number = forms.IntegerField(widget=forms.HiddenInput, initial=3, required=False)

    def clean(self) -> dict[str, Any]:
        if self.cleaned_data.get("title") == "none":
            raise forms.ValidationError("This cart is closed")
        return self.cleaned_data


class ProductChoiceForm(forms.Form):
    product = forms.ModelChoiceField(Product.objects.all())


@pytest.fixture
def server(make_app_server: MakeServer) -> Server:
    server = make_app_server()

    @form_tool(CartForm, server=server, title="Save")
    def save_cart(form: CartForm) -> str:
        """Save a cart."""
        return f"{form.cleaned_data['title']} {form.cleaned_data['quantity']} {form.cleaned_data['number']}"

    @form_tool(CartForm, server=server, name="save_later", visibility=["app"])
    async def save(form: CartForm, ctx: Context) -> str:
        return f"{form.cleaned_data['title']} of {ctx.server.alias}"

    return server


async def test_the_visible_fields_are_the_arguments(server: Server) -> None:
    tools = {tool["name"]: tool for tool in await TestClient(server).list_tools()}
    tool = tools["save_cart"]
    assert (tool["title"], tool["description"]) == ("Save", "Save a cart.")
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 1, "maxLength": 5, "title": "Title"},
            "quantity": {"type": "integer", "minimum": 1, "title": "Quantity"},
        },
        "required": ["title"],
    }
    assert tools["save_later"]["_meta"]["ui"] == {"visibility": ["app"]}


async def test_the_function_gets_the_valid_form(server: Server) -> None:
    client = TestClient(server)
    result = await client.call_tool("save_cart", {"title": "tea", "quantity": 2})
    assert result["content"] == [{"type": "text", "text": "tea 2 3"}]
    result = await client.call_tool("save_later", {"title": "tea"})
    assert result["content"] == [{"type": "text", "text": f"tea of {server.alias}"}]


@pytest.mark.parametrize("name", ["save_cart", "save_later"])
@pytest.mark.parametrize(
    ("arguments", "errors"),
    [
        ({}, {"title": ["This field is required."]}),
        (
            {"title": "too long", "quantity": 0},
            {
                "title": ["Ensure this value has at most 5 characters (it has 8)."],
                "quantity": ["Ensure this value is greater than or equal to 1."],
            },
        ),
        ({"title": "none"}, {"__all__": ["This cart is closed"]}),
        ({"title": "tea", "quantity": "two"}, {"quantity": ["this must be of type integer"]}),
        ({"title": ["tea"]}, {"title": ["this must be of type string"]}),
    ],
)
async def test_errors_come_back_by_field_and_as_text(
    server: Server, name: str, arguments: dict[str, Any], errors: dict[str, list[str]]
) -> None:
    result = await TestClient(server).call_tool(name, arguments)
    assert result["isError"] is True
    assert result["_meta"]["mcp-django/errors"] == errors
    [block] = result["content"]
    assert all(text in block["text"] for texts in errors.values() for text in texts)


async def test_names_that_are_no_visible_fields_are_refused(server: Server) -> None:
    result = await TestClient(server).call_tool("save_cart", {"title": "tea", "number": 4})
    assert "unknown argument 'number'" in result["content"][0]["text"]


async def test_choices_of_the_database_are_read_at_the_call(make_app_server: MakeServer, db: None) -> None:
    server = make_app_server()

    @form_tool(ProductChoiceForm, server=server)
    def choose(form: ProductChoiceForm) -> str:
        return str(form.cleaned_data["product"].pk)

    product = await Product.objects.acreate(name="Tea")
    client = TestClient(server)
    [tool] = await client.list_tools()
    assert tool["inputSchema"]["properties"] == {"product": {"type": "string", "title": "Product"}}
    result = await client.call_tool("choose", {"product": str(product.pk)})
    assert result["content"] == [{"type": "text", "text": str(product.pk)}]
    result = await client.call_tool("choose", {"product": "0"})
    assert list(result["_meta"]["mcp-django/errors"]) == ["product"]


async def test_a_field_that_a_tool_cannot_take_is_refused(make_app_server: MakeServer) -> None:
    class UploadForm(forms.Form):
        file = forms.FileField()

    with pytest.raises(DeclarationError, match="FileField"):
        form_tool(UploadForm, server=make_app_server())(lambda form: None)


async def test_a_function_takes_the_form_and_the_context_only(make_app_server: MakeServer) -> None:
    with pytest.raises(DeclarationError, match="takes the form"):
        form_tool(CartForm, server=make_app_server())(lambda form, ctx, other: None)


async def test_a_result_has_html_for_the_app_and_text_for_the_model(
    make_app_server: MakeServer, templates: dict[str, str]
) -> None:
    templates["list.html"] = "<li>{{ title }}</li>"
    server = make_app_server()

    @server.tool
    def list_carts() -> Any:
        return render_result("list.html", {"title": "<tea>"}, text="One cart: tea", structured={"count": 1})

    result = await TestClient(server).call_tool("list_carts")
    assert result["content"] == [{"type": "text", "text": "One cart: tea"}]
    assert result["structuredContent"] == {"count": 1, "html": "<li>&lt;tea&gt;</li>"}
