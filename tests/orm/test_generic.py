"""One set of tools for all models."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import override_settings

from mcp_django import Context, ModelToolset, ToolError, register, tool
from mcp_django.orm.generic import GenericTools, merge_argument_schemas, merge_result_schemas
from mcp_django.protocol.errors import InsufficientScope, InvalidParams
from mcp_django.schema import ANY_VALUE_SCHEMA
from mcp_django.server.primitives.registry import Registry, get_registry
from mcp_django.wiring import get_server
from tests.official_schema import validator
from tests.orm.test_resources import read, user
from tests.orm.toolsets import Categories, Orders, Products, Tags, principal
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_principal, make_server
from tests.shop.models import Category, Order, Product, Tag
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
VERBS = ["models_count", "models_describe", "models_get", "models_list"]


def peer(*toolsets: type[ModelToolset], **given: Any) -> PipelineClient:
    """A client of a server whose models share their tools."""
    registry = Registry("tests")
    with override_settings(MCP={"ORM_STYLE": "generic"}):
        made = [kind() for kind in toolsets or (Categories, Tags, Products, Orders)]
        server = make_server(registry=registry, toolsets=made, providers=[GenericTools(registry)])
    return PipelineClient(server, **given)


async def models(client: PipelineClient, tool: str = "models_list") -> list[str]:
    """The models that a tool names."""
    listed = (await client.request("tools/list"))["tools"]
    entry = next(entry for entry in listed if entry["name"] == tool)
    found: list[str] = entry["inputSchema"]["properties"]["model"]["enum"]
    return found


async def test_all_models_share_one_tool_for_each_verb() -> None:
    client = peer()
    assert await client.names() == VERBS
    assert await models(client) == ["shop.Category", "shop.Order", "shop.Product", "shop.Tag"]


async def test_generic_verbs_equal_the_tools_of_each_model() -> None:
    await Category.objects.acreate(slug="drinks", name="Drinks")
    for number in range(25):
        await Product.objects.acreate(name=f"Tea {number:02}", category_id="drinks", stock=number)
    client = peer()
    asked = {"filters": {"stock__gte": 3}, "order_by": ["-stock"], "fields": ["name"], "limit": 20}
    page = (await client.call("models_list", model="shop.Product", **asked))["structuredContent"]
    assert page["items"][0]["name"] == "Tea 24"
    rest = await client.call("models_list", model="shop.Product", cursor=page["next_cursor"], **asked)
    assert [row["name"] for row in rest["structuredContent"]["items"]] == ["Tea 04", "Tea 03"]
    row = (await client.call("models_get", model="shop.Category", pk="drinks"))["structuredContent"]
    assert row["name"] == "Drinks"
    count = (await client.call("models_count", model="shop.Product", search="tea"))["structuredContent"]
    assert count == {"count": 25}
    described = (await client.call("models_describe", model="shop.Product"))["structuredContent"]
    assert described["tools"] == ["models_describe", "models_list", "models_get", "models_count"]
    assert (await read(client, "shop.category://drinks"))["name"] == "Drinks"


async def test_invalid_arguments_are_refused_with_the_messages_of_the_own_tool() -> None:
    client = peer()
    assert "stock" in await client.error("models_list", model="shop.Product", filters={"stokc": 1})
    assert "pk" in await client.error("models_get", model="shop.Product")
    assert "search" in await client.error("models_list", model="shop.Tag", search="hot")
    assert "model" in await client.error("models_list")


async def test_a_hidden_model_is_refused_like_one_that_does_not_exist() -> None:
    client = peer(principal=principal(await sync_to_async(user)("ada", "view_product", "view_tag")))
    assert await models(client) == ["shop.Product", "shop.Tag"]
    texts = [await client.error("models_list", model=model) for model in ("shop.Order", "shop.Nothing", "auth.User")]
    assert texts[0].replace("shop.Order", "X") == texts[1].replace("shop.Nothing", "X")
    assert "Category" not in "".join(texts)
    listed = (await client.call("models_describe"))["structuredContent"]["models"]
    assert [(one["model"], one["tools"][0]) for one in listed] == [
        ("shop.Product", "models_describe"),
        ("shop.Tag", "models_describe"),
    ]


async def test_a_caller_without_visible_models_sees_no_tool() -> None:
    client = peer(principal=principal(await sync_to_async(user)("nobody")))
    assert await client.names() == []
    with pytest.raises(InvalidParams, match="Unknown tool: models_list"):
        await client.call("models_list", model="shop.Tag")
    with pytest.raises(InvalidParams, match="Unknown tool: models_purge"):
        await client.call("models_purge", model="shop.Tag")


async def test_rows_of_others_are_absent() -> None:
    ada, bob = await sync_to_async(user)("ada", "view_order"), await sync_to_async(user)("bob", "view_order")
    order = await Order.objects.acreate(owner=ada, reference="A-1")
    client = peer(principal=principal(bob))
    foreign = await client.error("models_get", model="shop.Order", pk=str(order.pk))
    absent = await client.error("models_get", model="shop.Order", pk="00000000-0000-0000-0000-000000000000")
    assert foreign.replace(str(order.pk), "X") == absent.replace("00000000-0000-0000-0000-000000000000", "X")
    page = (await client.call("models_list", model="shop.Order"))["structuredContent"]
    assert page["items"] == []


async def test_a_hook_that_refuses_hides_the_model_and_one_that_fails_does_too() -> None:
    class Refused(Tags):
        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            return False

    class Failing(Categories):
        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            raise KeyError("secret")

    client = peer(Refused, Failing, Products)
    assert await models(client) == ["shop.Product"]
    texts = [await client.error("models_count", model=model) for model in ("shop.Tag", "shop.Category", "shop.None")]
    assert len({text.replace(name, "X") for text, name in zip(texts, ("Tag", "Category", "None"), strict=True)}) == 1


async def test_scopes_guards_and_interceptors_of_a_toolset_apply() -> None:
    def refuse(ctx: Context) -> None:
        raise ToolError(f"not now: {ctx.metadata['verb']} of {ctx.metadata['model']}")

    class Scoped(Tags):
        scopes = ["tags"]

    class Guarded(Categories):
        guards = [refuse]

    client = peer(Scoped, Guarded, principal=make_principal("shop.view_tag", "shop.view_category"))
    assert await models(client) == ["shop.Category", "shop.Tag"]
    with pytest.raises(InsufficientScope):
        await client.call("models_list", model="shop.Tag")
    assert await client.error("models_list", model="shop.Category") == "not now: list of shop.Category"


async def test_clients_of_older_revisions_get_their_error_for_invalid_arguments() -> None:
    client = peer(version=HANDSHAKE)
    assert "not one of" in await client.error("models_list", model="shop.Nothing")
    with pytest.raises(InvalidParams, match="not one of"):
        await peer(version="2025-06-18").call("models_list", model="shop.Nothing")


async def test_methods_of_a_toolset_remain_separate_tools() -> None:
    class Shouting(Tags):
        @tool
        def shout(self) -> str:
            """Return a text in capitals."""
            return "TAG"

    client = peer(Shouting, Categories)
    assert await client.names() == [*VERBS, "tag_shout"]
    assert await client.text("tag_shout") == "TAG"


@override_settings(MCP={"AUTH": "none", "ORM_STYLE": "generic", "SERVERS": {"default": {}, "staff": {}}})
async def test_a_server_of_the_settings_has_their_style(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.server.primitives.registry.REGISTRIES", {})
    register(Tag, server="staff")(Tags)
    server = get_server("staff")
    assert server.registry is get_registry("staff")
    assert await PipelineClient(server).names() == VERBS


async def test_a_server_may_have_a_style_of_its_own(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    own = {name: name.replace("models", "tag") for name in VERBS}
    for common, style in (("per_model", "generic"), ("generic", "per_model"), (None, "generic"), (None, None)):
        servers: dict[str, Any] = {"default": {}, "staff": {"ORM_STYLE": style} if style else {}}
        given = {"AUTH": "none", "SERVERS": servers, **({"ORM_STYLE": common} if common else {})}
        with subtests.test(common=common, style=style), override_settings(MCP=given):
            monkeypatch.setattr("mcp_django.server.primitives.registry.REGISTRIES", {})
            register(Tag)(Tags)
            register(Tag, server="staff")(Tags)
            for alias, expected in (("default", common), ("staff", style)):
                names = VERBS if expected == "generic" else [own[name] for name in VERBS]
                assert await PipelineClient(get_server(alias)).names() == names


def test_one_schema_fits_all_models() -> None:
    text, number = {"type": "string", "maxLength": 5}, {"type": "integer", "minimum": 1}
    first = {
        "type": "object",
        "properties": {"a": text, "b": number, "c": {"$ref": "#/$defs/C"}},
        "required": ["a", "b"],
    }
    first["$defs"] = {"C": {"type": "array", "items": {"type": "string"}}}
    second = {"type": "object", "properties": {"a": {**text, "title": "A"}, "b": {"type": ["number", "null"]}, "c": {}}}
    merged = merge_argument_schemas([{**first}, {**second, "required": ["a"]}])
    assert merged["required"] == ["a"]
    assert merged["properties"] == {
        "a": {"type": "string", "maxLength": 5},
        "b": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "c": ANY_VALUE_SCHEMA,
    }
    assert merge_result_schemas([first, {"type": "object", "properties": {"b": number}, "required": ["b"]}]) == {
        "type": "object",
        "properties": {"b": number},
        "required": ["b"],
    }


async def test_rows_are_written_with_the_questions_and_permissions_of_their_model(admin_user: Any) -> None:
    class Written(Tags):
        tools = ["list", "create", "delete"]
        confirm = ["delete"]

    client = peer(
        Written, Categories, principal=principal(admin_user), answer=lambda method, params: accept(value=True)
    )
    assert await models(client, "models_create") == ["shop.Tag"]
    made = (await client.call("models_create", model="shop.Tag", values={"name": "hot"}))["structuredContent"]
    assert made["item"]["name"] == "hot"
    gone = await client.call("models_delete", model="shop.Tag", pk=made["pk"])
    assert not gone["isError"], gone
    assert client.rounds == 1
    assert not await Tag.objects.aexists()
    hints = {tool["name"]: tool["annotations"] for tool in (await client.request("tools/list"))["tools"]}
    assert [hints[name]["readOnlyHint"] for name in ("models_create", "models_list")] == [False, True]
    seen = peer(Written, Categories, principal=principal(await sync_to_async(user)("ada", "view_tag")))
    assert "models_create" not in await seen.names()


def test_listed_tools_match_the_official_schema(subtests: pytest.Subtests) -> None:
    async def check(version: str) -> None:
        validator(version, "ListToolsResult")(await peer(version=version).request("tools/list"))

    for version in (HANDSHAKE, STATELESS):
        with subtests.test(version=version), rolled_back():
            async_to_sync(check)(version)
