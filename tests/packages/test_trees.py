"""Trees of django-treebeard and django-mptt: rows are added, moved and deleted, and the trees stay consistent."""

import random
import sys
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import Context, ModelToolset
from mcp_django.orm import TreeToolset
from mcp_django.schema import DeclarationError
from mcp_django.server.server import Server
from mcp_django.testing import TestClient
from tests.packages.models import Category, Chapter, Region, SortedCategory
from tests.recipes.pages import Recipe

pytestmark = pytest.mark.django_db
TREES = [Category, SortedCategory, Chapter]


def build_client(model: Any, base: type[ModelToolset] = TreeToolset, **attributes: Any) -> TestClient:
    """Return a client of the tools of one tree."""
    options = {
        "model": model,
        "fields": ["name", "parent", "depth"],
        "tools": ["list", "get", "create", "update", "delete"],
        "prefix": "node",
        **attributes,
    }
    return TestClient(Server("test", toolsets=[type("Nodes", (base,), options)()]))


async def write(client: TestClient, tool: str, **arguments: Any) -> Any:
    """Return the structured result of a call, or the text of its error."""
    answer = await client.call_tool(f"node_{tool}", arguments)
    return answer["content"][0]["text"] if answer.get("isError") else answer["structuredContent"]


@pytest.mark.parametrize("model", TREES)
async def test_create_adds_roots_and_rows_below_a_parent(model: Any) -> None:
    client = build_client(model)
    root = await write(client, "create", values={"name": "Books"})
    child = await write(client, "create", values={"name": "Novels", "parent": root["pk"]})
    assert (root["item"]["parent"], root["item"]["depth"]) == (None, 1)
    assert (child["item"]["parent"], child["item"]["depth"]) == (root["pk"], 2)
    assert [row["parent"] for row in (await write(client, "list"))["items"]] == [None, root["pk"]]
    assert await write(client, "create", values={"name": "X", "parent": 999}) == (
        "There is no " + model._meta.verbose_name + " with the primary key '999'"
    )
    assert await model.objects.acount() == 2


@pytest.mark.parametrize("model", TREES)
async def test_update_with_a_parent_moves_a_row_with_its_children(model: Any) -> None:
    client = build_client(model)
    books = await write(client, "create", values={"name": "Books"})
    films = await write(client, "create", values={"name": "Films"})
    novels = await write(client, "create", values={"name": "Novels", "parent": books["pk"]})
    crime = await write(client, "create", values={"name": "Crime", "parent": novels["pk"]})
    moved = await write(client, "update", pk=novels["pk"], values={"parent": films["pk"], "name": "Plots"})
    assert (moved["item"]["parent"], moved["item"]["name"]) == (films["pk"], "Plots")
    assert (await write(client, "get", pk=crime["pk"]))["depth"] == 3
    stays = await write(client, "update", pk=novels["pk"], values={"name": "Stories"})
    assert stays["item"]["parent"] == films["pk"]
    refused = await write(client, "update", pk=films["pk"], values={"parent": crime["pk"]})
    assert "cannot be moved to itself or below itself" in refused


@pytest.mark.parametrize("model", TREES)
async def test_move_makes_roots_and_orders_siblings(model: Any) -> None:
    client = build_client(model)
    books = await write(client, "create", values={"name": "Books"})
    novels = await write(client, "create", values={"name": "Novels", "parent": books["pk"]})
    essays = await write(client, "create", values={"name": "Essays", "parent": books["pk"]})
    await write(client, "move", pk=essays["pk"], target=novels["pk"], position="left")
    names = [row.name async for row in model.objects.filter(depth=2)]
    assert names == ["Essays", "Novels"]
    await write(client, "move", pk=novels["pk"])
    assert (await write(client, "get", pk=novels["pk"]))["parent"] is None
    assert "cannot be moved" in await write(client, "move", pk=books["pk"], target=essays["pk"])


@pytest.mark.parametrize("model", TREES)
async def test_delete_refuses_rows_with_children(model: Any) -> None:
    client = build_client(model)
    books = await write(client, "create", values={"name": "Books"})
    novels = await write(client, "create", values={"name": "Novels", "parent": books["pk"]})
    assert "has others below it" in await write(client, "delete", pk=books["pk"])
    assert (await write(client, "delete", pk=novels["pk"]))["pk"] == novels["pk"]
    assert (await write(client, "delete", pk=books["pk"]))["pk"] == books["pk"]
    assert await model.objects.acount() == 0


async def test_random_writes_keep_the_tree_consistent() -> None:
    client = build_client(Category)
    choose = random.Random(5)
    for number in range(60):
        keys = [pk async for pk in Category.objects.values_list("pk", flat=True)] or [0]
        pk, other = choose.choice(keys), choose.choice([*keys, None])
        match choose.choice(["create", "create", "update", "move", "delete"]):
            case "create":
                await write(client, "create", values={"name": f"n{number}", "parent": other})
            case "update":
                await write(client, "update", pk=pk, values={"parent": other})
            case "move":
                position = choose.choice(["first-child", "last-child", "left", "right"])
                await write(client, "move", pk=pk, target=other, position=position)
            case "delete":
                await write(client, "delete", pk=pk)
    assert await Category.objects.acount() > 5
    assert [*map(list, await sync_to_async(Category.find_problems)())] == [[], [], [], [], []]


async def test_hidden_parents_are_null_and_accept_no_rows() -> None:
    secret = await sync_to_async(Category.add_root)(name="Secret")
    child = await sync_to_async(secret.add_child)(name="Child")

    class VisibleTree(TreeToolset):
        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).exclude(name="Secret")

    client = build_client(Category, VisibleTree)
    assert (await write(client, "get", pk=child.pk))["parent"] is None
    assert "There is no category" in await write(client, "create", values={"name": "X", "parent": secret.pk})
    assert "There is no category" in await write(client, "move", pk=child.pk, target=secret.pk)


@pytest.mark.parametrize("tool", ["create", "delete"])
def test_declaration_that_would_corrupt_a_tree_is_refused(tool: str) -> None:
    with pytest.raises(DeclarationError, match="would corrupt the tree"):
        build_client(Category, ModelToolset, fields=["name"], tools=[tool])


async def test_columns_of_a_tree_are_never_written() -> None:
    client = build_client(Category, ModelToolset, fields=["name", "path", "depth", "numchild"], tools=["get", "update"])
    [update] = [tool for tool in await client.list_tools() if tool["name"] == "node_update"]
    assert list(update["inputSchema"]["properties"]["values"]["properties"]) == ["name"]


async def test_rows_of_mptt_are_added_and_moved_by_their_parent() -> None:
    client = build_client(Region, ModelToolset, fields=["name", "parent", "level"])
    europe = await write(client, "create", values={"name": "Europe"})
    swiss = await write(client, "create", values={"name": "Switzerland", "parent": europe["pk"]})
    assert swiss["item"]["level"] == 1
    refused = await write(client, "update", pk=europe["pk"], values={"parent": swiss["pk"]})
    assert refused == "A node may not be made a child of any of its descendants."
    assert (await Region.objects.aget(pk=europe["pk"])).get_descendant_count() == 1


async def test_the_recipe_for_trees_works(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = ModuleType("catalogue.models")
    catalogue.Category = Category  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "catalogue", ModuleType("catalogue"))
    monkeypatch.setitem(sys.modules, catalogue.__name__, catalogue)
    client = Recipe("trees", "TreeToolset", monkeypatch).client()
    root = await client.call_tool("category_create", {"values": {"name": "Books"}})
    assert root["structuredContent"]["item"]["depth"] == 1
