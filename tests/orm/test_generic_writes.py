"""Writing through the tools that all models share."""

from typing import Any

import pytest
from django.test import override_settings

from mcp_django import ModelToolset
from mcp_django.orm.generic import GenericTools
from mcp_django.server.primitives.registry import Registry
from tests.orm.toolsets import Tags, principal
from tests.orm.writing import Categories, Orders, Products, get_error, get_field_errors, get_result, user
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server
from tests.shop.models import Category, Order, Product, Tag
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


class Asking(Products):
    confirm = ("delete",)


class WritableTags(Tags):
    tools = ("get", "create")


def client(*toolsets: type[ModelToolset], **given: Any) -> PipelineClient:
    registry = Registry("tests")
    with override_settings(MCP={"ORM_STYLE": "generic"}):
        made = [kind() for kind in toolsets or (Categories, WritableTags, Asking, Orders)]
        server = make_server(registry=registry, toolsets=made, providers=[GenericTools(registry)])
    return PipelineClient(server, principal=principal(user()), **given)


def test_rows_of_every_model_are_written_and_identified() -> None:
    sue = client()
    tea = get_result(sue, "models_create", model="shop.Product", values={"name": "Tea"}, idempotency_key="k")["pk"]
    # The same key for another model is another write.
    get_result(sue, "models_create", model="shop.Tag", values={"name": "Tea"}, idempotency_key="k")
    assert (Product.objects.count(), Tag.objects.count()) == (1, 1)
    result = get_result(sue, "models_update", model="shop.Product", pk=tea, values={"stock": 4}, dry_run=True)
    assert (result["changed"], Product.objects.get().stock) == (["stock"], 0)
    errors = get_field_errors(sue, "models_update", model="shop.Product", pk=tea, values={"category": "nowhere"})
    assert set(errors) == {"category"}
    assert "cost" in get_error(sue, "models_update", model="shop.Product", pk=tea, values={"cost": "1"})
    lines = {"lines": {"add": [{"product": tea}]}}
    get_result(sue, "models_create", model="shop.Order", values={"reference": "A1"}, inlines=lines)
    assert Order.objects.get().lines.count() == 1
    assert get_result(sue, "models_history", model="shop.Product", pk=tea)["items"][0]["kind"] == "added"


def test_a_generic_write_requires_confirmation(subtests: pytest.Subtests) -> None:
    def check(version: str) -> None:
        asked: list[str] = []

        def agree(method: str, params: dict[str, Any]) -> dict[str, Any]:
            asked.append(params["message"])
            return {"action": "accept", "content": {}}

        sue = client(version=version, answer=agree)
        tea = Product.objects.create(name="Tea")
        Category.objects.create(slug="drinks", name="Drinks")
        get_result(sue, "models_delete", model="shop.Category", pk="drinks")
        assert asked == []
        get_result(sue, "models_delete", model="shop.Product", pk=tea.pk)
        assert len(asked) == 1
        assert not Product.objects.exists()

    for version in (STATELESS, HANDSHAKE):
        with subtests.test(version=version), rolled_back():
            check(version)


def test_writable_fields_are_described_to_permitted_callers() -> None:
    class Described(Orders):
        tools = ("describe", "create", "update")

    class DescribedTags(Tags):
        tools = ("describe", "create")

    sue = client(Described, DescribedTags, Products)
    described = get_result(sue, "models_describe", model="shop.Order")
    writes = described["writes"]
    assert set(writes) == {"models_create", "models_update"}
    assert writes["models_create"]["values"]["required"] == ["reference"]
    assert "product" in described["inlines"]["lines"]["changes"]["properties"]["add"]["items"]["properties"]
    assert set(get_result(sue, "models_describe", model="shop.Tag")["writes"]) == {"models_create"}


async def test_shared_arguments_are_described_completely() -> None:
    class Counted(Products):
        tools = ("list", "aggregate")

    class CountedTags(Tags):
        tools = ("list", "aggregate")

    with override_settings(MCP={"ORM_STYLE": "generic"}):
        registry = Registry("tests")
        server = make_server(registry=registry, toolsets=[Counted(), CountedTags()], providers=[GenericTools(registry)])
    listed = {tool["name"]: tool for tool in (await PipelineClient(server).request("tools/list"))["tools"]}
    order = listed["models_list"]["inputSchema"]["properties"]["order_by"]
    assert order["items"]["type"] == "string"
    assert order["description"] == "Orderable fields; descending with a leading -"
    metric = listed["models_aggregate"]["inputSchema"]["properties"]["metrics"]["items"]
    assert metric["properties"]["function"]["enum"] == ["count", "sum", "avg", "min", "max"]
    assert metric["required"] == ["function"]
