"""`describe`, the schemas, and their descriptions of fields."""

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation

from mcp_django import ModelInline, ModelToolset, action
from mcp_django.schema.host_rules import find_host_findings
from tests.official_schema import validator
from tests.orm.test_generic import peer as generic_peer
from tests.orm.toolsets import Categories, Orders, Products, Tags, data, peer
from tests.shop.models import Line, Product

pytestmark = pytest.mark.django_db


class Everything(Products):
    """Things on the shelves."""

    tools = ["describe", "list", "get", "count", "aggregate"]


async def fields(*toolsets: type[ModelToolset]) -> dict[str, dict[str, Any]]:
    described = await data(peer(*toolsets), "product_describe")
    return {field["name"]: field for field in described["fields"]}


async def test_describe_lists_fields_filters_and_orders(db: Any) -> None:
    described = await data(peer(Categories, Tags, Everything), "product_describe")
    assert described["model"] == "shop.Product"
    assert described["description"] == "Things on the shelves."
    assert described["search"] == ["name", "category__name"]
    assert described["ordering"] == ["name"]
    assert (described["page_size"], described["max_limit"]) == (20, 100)
    found = await fields(Categories, Tags, Everything)
    assert found["price"]["type"] == "decimal"
    assert found["price"]["lookups"] == ["exact", "in", "isnull", "gt", "gte", "lt", "lte", "range"]
    assert found["name"]["description"] == "As on the label."
    assert found["category"]["refers_to"] == "shop.Category"
    assert "refers_to" not in found["supplier"]
    assert found["tags"]["many"]
    assert not found["tags"]["orderable"]
    assert found["details"]["lookups"] == ["isnull"]
    assert found["loud"] == {"name": "loud", "type": "computed", "description": "The name, loudly.", "shown": True}


@pytest.fixture
def german(monkeypatch: pytest.MonkeyPatch) -> None:
    """A German catalogue for the labels of the shop."""
    labels = {"Draft": "Entwurf", "Active": "Lieferbar", "Gone": "Vergriffen"}
    catalogue = translation._trans.gettext  # type: ignore[attr-defined]
    monkeypatch.setattr(
        translation._trans,  # type: ignore[attr-defined]
        "gettext",
        lambda text: labels.get(text, text) if translation.get_language() == "de" else catalogue(text),
    )


@pytest.mark.usefixtures("german")
async def test_choices_are_in_the_language_of_the_caller(db: Any) -> None:
    for language, labels in (("en", ["Draft", "Active", "Gone"]), ("de", ["Entwurf", "Lieferbar", "Vergriffen"])):
        with translation.override(language):
            found = await fields(Everything)
            assert [choice["label"] for choice in found["status"]["choices"]] == labels
            assert [choice["value"] for choice in found["status"]["choices"]] == ["draft", "active", "gone"]


@pytest.mark.usefixtures("german")
async def test_schemas_are_in_the_language_of_the_project_for_any_first_caller(db: Any) -> None:
    class ProductInline(ModelInline):
        model = Product
        fields = ["status"]

    class LabelledCategories(Categories):
        tools = ["describe", "create"]
        inlines = [ProductInline]

    client = peer(LabelledCategories)
    with translation.override("de"):
        await data(client, "category_describe")
    described = await data(client, "category_describe")
    assert "gone: Gone" in str(described["inlines"])
    assert "Vergriffen" not in str(described["inlines"])


async def test_the_label_of_a_choice_is_a_field_if_it_is_named(db: Any) -> None:
    class Labelled(ModelToolset):
        model = Product
        fields = ["status", "get_status_display"]

    product = await Product.objects.acreate(name="Tea", status="gone")
    row = await data(peer(Labelled), "product_get", pk=product.pk)
    assert row == {"pk": product.pk, "status": "gone", "get_status_display": "Gone"}


async def test_listed_tools_match_the_official_schema(db: Any) -> None:
    client = peer(Categories, Tags, Everything, Orders)
    listed = await client.request("tools/list")
    for tool in listed["tools"]:
        validator("2025-11-25", "Tool")(tool)
        assert tool["annotations"]["readOnlyHint"]
        assert tool["outputSchema"]["type"] == "object"
    validator("2026-07-28", "ListToolsResult")(listed)


class Undescribed(Everything):
    tools = ["list", "get", "aggregate"]


async def test_schemas_have_explanations_without_the_describe_tool(db: Any) -> None:
    tools = {tool["name"]: tool for tool in (await peer(Undescribed).request("tools/list"))["tools"]}
    row = tools["product_get"]["outputSchema"]["properties"]
    assert row["name"] == {"type": "string", "description": "As on the label"}
    assert row["status"]["description"] == "draft: Draft; active: Active; gone: Gone"
    assert row["weight"] == {"anyOf": [{"type": "number"}, {"type": "null"}]}
    assert row["margin"]["type"] == "number"
    assert row["margin"]["description"] == "The profit of the shop."
    given = tools["product_list"]["inputSchema"]["properties"]
    assert given["limit"]["maximum"] == 100
    assert "nest up to 4 levels" in given["filters"]["description"]
    assert given["filters"]["properties"]["name"]["description"].startswith(
        "As on the label. Also as name__<lookup>: in,"
    )
    assert "Of: name, category" in given["order_by"]["description"]


async def test_describe_explains_arguments_once_for_all_tools(db: Any) -> None:
    client = peer(Categories, Everything)
    given = (await client.request("tools/list"))["tools"]
    schemas = {tool["name"]: tool["inputSchema"]["properties"] for tool in given}
    short = schemas["product_list"]["filters"]
    assert short["description"] == (
        'Conditions by field, or field__lookup: {"name__icontains": "a", "price__gte": "9.50"}; see describe'
    )
    assert short["properties"]["name"] == {"type": "string"}
    assert short["properties"]["price"] == {"anyOf": [{"type": "number"}, {"type": "string"}]}
    assert short["properties"]["status"] == {"type": "string", "enum": ["draft", "active", "gone"]}
    assert short["properties"]["details__isnull"] == {"type": "boolean"}

    described = (await data(client, "product_describe"))["arguments"]
    assert "nest up to 4 levels" in described["filters"]
    assert set(described) <= {name for schema in schemas.values() for name in schema}
    assert {"filters", "search", "order_by", "fields", "cursor", "metrics", "having"} <= set(described)
    assert "metrics" not in (await data(client, "category_describe"))["arguments"]


async def test_examples_of_filters_are_accepted(db: Any) -> None:
    class Numbers(ModelToolset):
        model = Line
        fields = ["quantity"]

    for toolset, tool in ((Everything, "product"), (Categories, "category"), (Tags, "tag"), (Numbers, "line")):
        client = peer(toolset)
        text = (await data(client, f"{tool}_describe"))["arguments"]["filters"]
        example = re.search(r"such as (\{.*\})\. in", text)
        assert example
        assert await data(client, f"{tool}_count", filters=json.loads(example[1])) == {"count": 0}


async def test_clients_accept_the_schemas_without_warnings(db: Any) -> None:
    class Written(Everything):
        fields = [*Everything.fields, "unknown"]
        tools = ["describe", "list", "get", "count", "aggregate", "create", "update", "delete", "history"]

        def unknown(self, obj: Product):  # type: ignore[no-untyped-def]
            return None

        @action
        def touch(self, obj: Product):  # type: ignore[no-untyped-def]
            return None

    for made in (peer, generic_peer):
        for toolsets in ((Written, Categories, Tags, Orders), (Undescribed, Orders)):
            tools = (await made(*toolsets).request("tools/list"))["tools"]
            assert list(find_host_findings(tools)) == []


async def test_computed_fields_of_any_annotation_are_shown(db: Any) -> None:
    class Computed(ModelToolset):
        model = Product
        fields = ["total", "caller", "shout", "parts", "raw"]

        def total(self, obj: Product) -> Decimal:
            return obj.price * obj.stock

        def caller(self, obj: Product, ctx: Any) -> str:
            return str(ctx.tool_name)

        def parts(self, obj: Product) -> dict[str, int]:
            return {"stock": obj.stock}

        def raw(self, obj: Product) -> Any:
            return [obj.price]

    product = await Product.objects.acreate(name="Tea", price=Decimal("1.50"), stock=2)
    await product.arefresh_from_db()
    row = await data(peer(Computed), "product_get", pk=product.pk)
    assert row == {
        "pk": product.pk,
        "total": "3.00",
        "caller": "product_get",
        "shout": "TEA",
        "parts": {"stock": 2},
        "raw": ["1.50"],
    }


async def test_datetimes_are_in_the_current_time_zone(db: Any, settings: Any) -> None:
    from django.utils import timezone

    product = await Product.objects.acreate(name="Tea", updated="2026-06-30T22:30:00Z")
    with timezone.override("Europe/Zurich"):
        row = await data(peer(Everything), "product_get", pk=product.pk)
        assert row["updated"] == "2026-07-01T00:30:00+02:00"
        found = await data(peer(Everything), "product_count", filters={"updated__date": "2026-07-01"})
        assert found == {"count": 1}
        found = await data(peer(Everything), "product_count", filters={"updated": "2026-07-01T00:30:00"})
        assert found == {"count": 1}
