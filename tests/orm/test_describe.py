"""`describe`, the schemas, and what both say about fields."""

from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation

from mcp_django import ModelToolset
from tests.official_schema import validator
from tests.orm.toolsets import Categories, Orders, Products, Tags, data, peer
from tests.shop.models import Product

pytestmark = pytest.mark.django_db


class Everything(Products):
    """Things on the shelves."""

    tools = ["describe", "list", "get", "count", "aggregate"]


async def fields(*toolsets: type[ModelToolset]) -> dict[str, dict[str, Any]]:
    described = await data(peer(*toolsets), "product_describe")
    return {field["name"]: field for field in described["fields"]}


async def test_it_says_what_can_be_asked(db: Any) -> None:
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


async def test_choices_are_told_in_the_caller_s_language(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    german = {"Draft": "Entwurf", "Active": "Lieferbar", "Gone": "Vergriffen"}
    real = translation.gettext
    catalogue = translation._trans.gettext  # type: ignore[attr-defined]
    monkeypatch.setattr(
        translation._trans,  # type: ignore[attr-defined]
        "gettext",
        lambda text: german.get(text, text) if translation.get_language() == "de" else catalogue(text),
    )
    assert real("Draft") == "Draft"
    for language, labels in (("en", ["Draft", "Active", "Gone"]), ("de", ["Entwurf", "Lieferbar", "Vergriffen"])):
        with translation.override(language):
            found = await fields(Everything)
            assert [choice["label"] for choice in found["status"]["choices"]] == labels
            assert [choice["value"] for choice in found["status"]["choices"]] == ["draft", "active", "gone"]


async def test_the_label_of_a_choice_is_a_field_if_it_is_named(db: Any) -> None:
    class Labelled(ModelToolset):
        model = Product
        fields = ["status", "get_status_display"]

    product = await Product.objects.acreate(name="Tea", status="gone")
    row = await data(peer(Labelled), "product_get", pk=product.pk)
    assert row == {"pk": product.pk, "status": "gone", "get_status_display": "Gone"}


async def test_tools_are_listed_as_the_official_schema_wants_them(db: Any) -> None:
    client = peer(Categories, Tags, Everything, Orders)
    listed = await client.request("tools/list")
    for tool in listed["tools"]:
        validator("2025-11-25", "Tool")(tool)
        assert tool["annotations"]["readOnlyHint"]
        assert tool["outputSchema"]["type"] == "object"
    validator("2026-07-28", "ListToolsResult")(listed)


async def test_schemas_say_what_choices_and_help_texts_say(db: Any) -> None:
    tools = {tool["name"]: tool for tool in (await peer(Everything).request("tools/list"))["tools"]}
    row = tools["product_get"]["outputSchema"]["properties"]
    assert row["name"] == {"type": "string", "description": "As on the label"}
    assert row["status"]["description"] == "draft: Draft; active: Active; gone: Gone"
    assert row["weight"]["type"] == ["number", "null"]
    assert row["margin"]["type"] == "number"
    assert row["margin"]["description"] == "What the shop earns."
    assert tools["product_list"]["inputSchema"]["properties"]["limit"]["maximum"] == 100


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


async def test_moments_are_in_the_current_time_zone(db: Any, settings: Any) -> None:
    from django.utils import timezone

    product = await Product.objects.acreate(name="Tea", updated="2026-06-30T22:30:00Z")
    with timezone.override("Europe/Zurich"):
        row = await data(peer(Everything), "product_get", pk=product.pk)
        assert row["updated"] == "2026-07-01T00:30:00+02:00"
        found = await data(peer(Everything), "product_count", filters={"updated__date": "2026-07-01"})
        assert found == {"count": 1}
        found = await data(peer(Everything), "product_count", filters={"updated": "2026-07-01T00:30:00"})
        assert found == {"count": 1}
