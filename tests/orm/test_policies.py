"""Policies of the verbs of models, wherever a verb is reached from."""

from typing import Any

import pytest

from mcp_django import Context
from mcp_django.models import ToolPolicy
from mcp_django.protocol.errors import MCPError
from mcp_django.server.subscriptions.filter import can_read, is_public
from tests.orm.test_generic import models
from tests.orm.test_generic import peer as generic
from tests.orm.test_resources import offered, read
from tests.orm.toolsets import peer
from tests.server.client import PipelineClient
from tests.shop.models import Category, Product

pytestmark = pytest.mark.django_db


async def disable(tool: str) -> None:
    await ToolPolicy.objects.acreate(tool=tool, disabled=True)


async def refusal(client: PipelineClient, method: str, params: dict[str, Any]) -> tuple[type, str, Any]:
    with pytest.raises(MCPError) as refused:
        await client.request(method, params)
    return type(refused.value), str(refused.value), refused.value.data


async def templates(client: PipelineClient) -> list[str]:
    return await client.names("resources/templates/list", "resourceTemplates", "uriTemplate")


async def test_a_row_whose_verb_is_disabled_has_no_uri() -> None:
    tea = await Product.objects.acreate(name="Tea")
    client = peer()
    uri, unknown = f"shop.product://{tea.pk}", "shop.nothing://1"
    assert (await read(client, uri))["name"] == "Tea"
    await disable("product_get")
    assert "shop.product://{pk}" not in await templates(client)
    kind, text, data = await refusal(client, "resources/read", {"uri": uri})
    assert (kind, text, {**data, "uri": unknown}) == await refusal(client, "resources/read", {"uri": unknown})
    assert "product_get" not in await client.names()


async def test_a_template_whose_verb_is_disabled_completes_nothing_like_an_unknown_one() -> None:
    client = peer()
    await disable("product_get")
    argument = {"name": "pk", "value": ""}
    found = [
        await refusal(
            client, "completion/complete", {"ref": {"type": "ref/resource", "uri": uri}, "argument": argument}
        )
        for uri in ("shop.product://{pk}", "shop.prodxxx://{pk}")
    ]
    assert found[0][0] is found[1][0]
    assert found[0][1].replace("shop.product", "shop.prodxxx") == found[1][1]


async def test_keys_are_not_completed_by_a_disabled_list() -> None:
    await Category.objects.acreate(slug="drinks", name="Drinks")
    client = peer()
    assert await offered(client, "shop.category://{pk}", "pk", "") == ["drinks"]
    await disable("category_list")
    assert await offered(client, "shop.category://{pk}", "pk", "") == []
    assert not [text for text in await templates(client) if text.startswith("shop.category://{?")]


async def test_a_disabled_verb_ends_notifications_of_its_rows() -> None:
    tea = await Product.objects.acreate(name="Tea")
    client = peer()
    uri = f"shop.product://{tea.pk}"

    @client.server.tool
    async def can_read_row(ctx: Context) -> bool:
        return is_public(client.server, uri) or await can_read(ctx.call, uri)

    async def is_readable() -> Any:
        return (await client.call("can_read_row"))["structuredContent"]["result"]

    assert await is_readable()
    await disable("product_get")
    assert not await is_readable()
    await ToolPolicy.objects.all().adelete()
    assert await is_readable()


async def test_a_description_does_not_name_disabled_tools() -> None:
    client = peer()
    assert "product_count" in (await client.call("product_describe"))["structuredContent"]["tools"]
    await disable("product_count")
    assert "product_count" not in (await client.call("product_describe"))["structuredContent"]["tools"]


async def test_a_generic_tool_does_not_know_models_whose_verb_is_disabled() -> None:
    client = generic()
    assert "shop.Order" in await models(client)
    await disable("order_list")
    assert "shop.Order" not in await models(client)
    assert "shop.Order" in await models(client, "models_get")
    hidden = await client.error("models_list", model="shop.Order")
    unknown = await client.error("models_list", model="shop.Ordex")
    assert hidden.replace("Order", "Ordex") == unknown


async def test_a_generic_tool_can_be_disabled_itself() -> None:
    client = generic()
    assert "models_list" in await client.names()
    await disable("models_list")
    assert "models_list" not in await client.names()
    hidden = await refusal(client, "tools/call", {"name": "models_list", "arguments": {"model": "shop.Order"}})
    unknown = await refusal(client, "tools/call", {"name": "models_lisx", "arguments": {"model": "shop.Order"}})
    assert hidden[1].replace("models_list", "models_lisx") == unknown[1]


async def test_the_rate_of_a_verb_counts_the_calls_that_it_forwards() -> None:
    await ToolPolicy.objects.acreate(tool="order_count", rate="1/h")
    client = generic()
    assert not (await client.call("models_count", model="shop.Order"))["isError"]
    assert "wait" in await client.error("models_count", model="shop.Order")
    assert not (await client.call("models_count", model="shop.Product"))["isError"]
