"""Rows as resources: reading, pages, completions, subscriptions, and permissions."""

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType

from mcp_django import Context, ModelToolset
from mcp_django.orm.resources import RowUri
from mcp_django.protocol.errors import InternalError, InvalidParams, ResourceNotFound
from mcp_django.providers.mounts import Mount
from tests.official_schema import validator
from tests.orm.toolsets import Categories, Orders, Products, Tags, peer, principal, shop
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server
from tests.shop.models import Category, Order, Product, Tag
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


def user(name: str, *codenames: str) -> User:
    """A user with these permissions on the shop."""
    found = User.objects.create_user(name)
    kinds = ContentType.objects.filter(app_label="shop")
    found.user_permissions.set(Permission.objects.filter(content_type__in=kinds, codename__in=codenames))
    return found


async def read(client: PipelineClient, uri: str) -> Any:
    """Read the content of a URI."""
    [content] = (await client.request("resources/read", {"uri": uri}))["contents"]
    assert (content["uri"], content["mimeType"]) == (uri, "application/json")
    return json.loads(content["text"])


async def offered(client: PipelineClient, template: str, argument: str, value: str) -> list[str]:
    """The values of a completion."""
    params = {"ref": {"type": "ref/resource", "uri": template}, "argument": {"name": argument, "value": value}}
    values: list[str] = (await client.request("completion/complete", params))["completion"]["values"]
    return values


async def test_a_resource_equals_the_result_of_get_and_links_to_others() -> None:
    drinks = await Category.objects.acreate(slug="drinks", name="Drinks")
    tea = await Product.objects.acreate(name="Tea", category=drinks)
    client = peer()
    row = await read(client, f"shop.product://{tea.pk}")
    assert row == (await client.call("product_get", pk=tea.pk))["structuredContent"]
    assert (await read(client, row["category"]["uri"]))["name"] == "Drinks"


async def test_every_primary_key_has_one_uri() -> None:
    for key in ("a/b", "..", "a b?c#d%2F", "ü"):
        await Category.objects.acreate(slug=key, name=key)
        await Product.objects.acreate(name=key, category_id=key)
    client = peer()
    uris = [row["category"]["uri"] for row in (await read(client, "shop.product://"))["items"]]
    assert sorted([(await read(client, uri))["pk"] for uri in uris]) == sorted(["a/b", "..", "a b?c#d%2F", "ü"])
    tag = await Tag.objects.acreate(name="hot")
    for key in (f"0{tag.pk}", f"+{tag.pk}", f"{tag.pk}.0", f" {tag.pk}", "x", "1" * 40, f"{tag.pk}/"):
        with pytest.raises(ResourceNotFound):
            await client.request("resources/read", {"uri": f"shop.tag://{key}"})


def test_uris_with_invalid_primary_keys_are_not_found(subtests: pytest.Subtests) -> None:
    for uri in ("shop.tag://", "shop.tag://a%00", "shop.tag://%ff", "shop.tag://a?b", "shop.tags://a"):
        with subtests.test(uri=uri):
            assert RowUri("shop.tag").match(uri) is None


async def test_rows_of_others_and_hidden_models_are_not_found() -> None:
    ada, bob = await sync_to_async(user)("ada", "view_order"), await sync_to_async(user)("bob", "view_order")
    order = await Order.objects.acreate(owner=ada, reference="A-1")
    nobody = await sync_to_async(user)("nobody")
    absent = "shop.order://00000000-0000-0000-0000-000000000000"
    assert (await read(peer(principal=principal(ada)), f"shop.order://{order.pk}"))["reference"] == "A-1"
    for who in (bob, nobody):
        client = peer(principal=principal(who))
        errors = []
        for uri in (f"shop.order://{order.pk}", absent):
            with pytest.raises(ResourceNotFound) as problem:
                await client.request("resources/read", {"uri": uri})
            errors.append((problem.value.code, problem.value.message, problem.value.data == {"uri": uri}))
        assert errors[0] == errors[1]


def test_templates_and_contents_match_the_official_schema(subtests: pytest.Subtests) -> None:
    async def check(version: str) -> None:
        client = peer(version=version)
        tag = await Tag.objects.acreate(name="hot")
        listed = await client.request("resources/templates/list")
        validator(version, "ListResourceTemplatesResult")(listed)
        validator(version, "ReadResourceResult")(
            await client.request("resources/read", {"uri": f"shop.tag://{tag.pk}"})
        )

    for version in (HANDSHAKE, STATELESS):
        with subtests.test(version=version), rolled_back():
            async_to_sync(check)(version)


async def test_templates_are_listed_for_those_who_may_view_the_model() -> None:
    texts = await peer().names("resources/templates/list", "resourceTemplates", "uriTemplate")
    assert texts[:2] == ["shop.category://{?name,parent,search,cursor}", "shop.category://{pk}"]
    seen = peer(principal=principal(await sync_to_async(user)("ada", "view_tag")))
    assert await seen.names("resources/templates/list", "resourceTemplates", "uriTemplate") == [
        "shop.tag://{?name,search,cursor}",
        "shop.tag://{pk}",
    ]


async def test_resources_of_a_mounted_server_take_the_same_keys_and_filters() -> None:
    class Sold(Products):
        list_filter = ["name", "category__name"]

    server = make_server(mounts=[Mount(shop(Categories, Sold), prefix="s", uri_prefix="s")])
    client = PipelineClient(server)
    await Product.objects.acreate(name="Tea", category=await Category.objects.acreate(slug="a/b", name="Drinks"))
    assert (await read(client, "s+shop.category://a%2Fb"))["name"] == "Drinks"
    page = await read(client, "s+shop.product://?category__name=Drinks")
    assert [row["name"] for row in page["items"]] == ["Tea"]


async def test_a_hook_that_refuses_a_row_refuses_its_resource() -> None:
    class Kept(ModelToolset):
        model = Tag
        fields = ["name"]

        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            return obj is None or obj.name != "secret"

    secret, hot = await Tag.objects.acreate(name="secret"), await Tag.objects.acreate(name="hot")
    client = peer(Kept)
    assert (await read(client, f"shop.tag://{hot.pk}"))["name"] == "hot"
    with pytest.raises(ResourceNotFound):
        await client.request("resources/read", {"uri": f"shop.tag://{secret.pk}"})


async def test_guards_see_reads_as_arguments_of_the_tool() -> None:
    class Watched(Tags):
        guards = [lambda ctx: ctx.arguments.get("pk") != closed.pk]

    opened, closed = [await Tag.objects.acreate(name=name) for name in ("open", "closed")]
    client = peer(Watched)
    assert (await read(client, f"shop.tag://{opened.pk}"))["name"] == "open"
    with pytest.raises(InternalError, match="may not be used here"):
        await client.request("resources/read", {"uri": f"shop.tag://{closed.pk}"})


async def test_guards_of_a_toolset_protect_its_resources() -> None:
    class Guarded(Tags):
        guards = [lambda ctx: False]

    tag = await Tag.objects.acreate(name="hot")
    for uri in (f"shop.tag://{tag.pk}", "shop.tag://"):
        with pytest.raises(InternalError, match="may not be used here"):
            await peer(Guarded).request("resources/read", {"uri": uri})


async def test_a_page_is_read_by_filters_search_and_cursor() -> None:
    drinks, food = [await Category.objects.acreate(slug=name.lower(), name=name) for name in ("Drinks", "Food")]
    for number in range(30):
        await Product.objects.acreate(name=f"Tea {number:02}", category=drinks, stock=number % 2, is_new=number == 7)
    await Product.objects.acreate(name="Bread", category=food)
    client = peer()
    first = await read(client, "shop.product://?category=drinks")
    assert (len(first["items"]), first["items"][0]["name"]) == (20, "Tea 00")
    rest = await read(client, f"shop.product://?category=drinks&cursor={first['next_cursor']}")
    assert [row["name"] for row in rest["items"]] == [f"Tea {number}" for number in range(20, 30)]
    assert [row["name"] for row in (await read(client, "shop.product://?search=bread"))["items"]] == ["Bread"]
    assert len((await read(client, "shop.product://?category=drinks&stock=1"))["items"]) == 15
    assert [row["name"] for row in (await read(client, "shop.product://?is_new=true"))["items"]] == ["Tea 07"]
    for wrong in ("stock=x", "is_new=perhaps", "stock=1&stock=2", "cost=1"):
        with pytest.raises(ResourceNotFound):
            await client.request("resources/read", {"uri": f"shop.product://?{wrong}"})


async def test_primary_keys_and_relations_are_completed_by_search_fields() -> None:
    for name in ("Drinks", "Food", "Dog food"):
        await Category.objects.acreate(slug=f"c-{name.lower().replace(' ', '-')}", name=name)
    client = peer()
    template, page = "shop.category://{pk}", "shop.category://{?name,parent,search,cursor}"
    assert await offered(client, template, "pk", "") == ["c-dog-food", "c-drinks", "c-food"]
    assert await offered(client, template, "pk", "c-d") == ["c-dog-food", "c-drinks"]
    assert await offered(client, template, "pk", "FOOD") == ["c-dog-food", "c-food"]
    assert await offered(client, page, "parent", "drinks") == ["c-drinks"]
    assert await offered(client, page, "name", "Dr") == []
    texts = await client.names("resources/templates/list", "resourceTemplates", "uriTemplate")
    products = next(text for text in texts if text.startswith("shop.product://{?"))
    assert await offered(client, products, "status", "") == ["draft", "active", "gone"]
    assert await offered(client, products, "is_new", "t") == ["true"]
    assert await offered(client, products, "category", "food") == ["c-dog-food", "c-food"]


async def test_rows_that_the_caller_cannot_list_are_not_completed() -> None:
    ada = await sync_to_async(user)("ada", "view_order", "view_product")
    bob = await sync_to_async(user)("bob", "view_product")
    await Order.objects.acreate(owner=bob, reference="B-1")
    await Category.objects.acreate(slug="drinks", name="Drinks")
    seen = peer(Categories, Products, Orders, principal=principal(ada))
    orders = "shop.order://{pk}"
    assert await offered(seen, orders, "pk", "") == []
    texts = await seen.names("resources/templates/list", "resourceTemplates", "uriTemplate")
    products = next(text for text in texts if text.startswith("shop.product://{?"))
    assert await offered(seen, products, "category", "") == []
    with pytest.raises(InvalidParams):
        await offered(peer(Categories, Products, Orders, principal=principal(bob)), orders, "pk", "")


async def test_a_toolset_serves_resources_of_its_verbs_only() -> None:
    class OnlyCounted(Categories):
        tools = ["count"]

    class NoResources(Tags):
        resources = False

    client = peer(OnlyCounted, NoResources, Products)
    texts = await client.names("resources/templates/list", "resourceTemplates", "uriTemplate")
    assert {text.partition(":")[0] for text in texts} == {"shop.product"}
    await Product.objects.acreate(name="Tea", category=await Category.objects.acreate(slug="drinks", name="Drinks"))
    [row] = (await client.call("product_list"))["structuredContent"]["items"]
    assert row["category"] == {"pk": "drinks", "label": "Drinks"}
