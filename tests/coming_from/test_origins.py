"""The form of the pages in docs/coming-from, and the example "after" of each page, served and called."""

import re
import sys
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.server import Server
from mcp_django.testing import TestClient, accept, decline
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.shop.models import Order

pytestmark = pytest.mark.django_db
FOLDER = ROOT / "docs" / "coming-from"
PAGES = {path.stem: path for path in FOLDER.glob("*.md") if path.stem != "index"}


def after(page: str) -> str:
    """Return the example of this package."""
    (block,) = (block for block in python_blocks(PAGES[page]) if block.startswith("# after"))
    return block


@pytest.fixture
def users() -> tuple[User, User]:
    """Two superusers with an order each."""
    ada, bob = (User.objects.create_superuser(name) for name in ("ada", "bob"))
    for user in (ada, bob):
        Order.objects.create(owner=user, reference=f"{user.username}-1", note="gift")
    return ada, bob


def client(page: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> TestClient:
    """Return a client of the example."""
    _, registry = served_by(after(page), monkeypatch)
    assert registry.problems == []
    return TestClient(Server("docs", "1", registry=registry), **options)


async def result(caller: TestClient, tool: str, **arguments: Any) -> Any:
    """Return the value of a tool that succeeds."""
    found = await caller.call_tool(tool, arguments)
    assert not found["isError"], found
    return found["structuredContent"].get("result", found["structuredContent"])


def test_each_page_compares_two_examples_and_lists_gains_and_losses() -> None:
    for page, path in PAGES.items():
        text = path.read_text(encoding="utf-8")
        assert "| You have | You write |" in text, page
        assert re.search(r"^(?:\*\*You gain\*\*|## You gain)", text, re.MULTILINE), page
        assert re.search(r"^(?:\*\*Not here:\*\*|## Not here)", text, re.MULTILINE), page
        assert re.search(r"November 2026|which the tests run", text), page
        assert after(page), page


def test_the_index_lists_each_page() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(([\w-]+)\.md\)", index)) == set(PAGES)


@pytest.mark.parametrize(
    ("page", "tool"), [("lauren-mcp", "orders_count"), ("python-sdk", "count_orders"), ("urchin", "count_orders")]
)
async def test_orders_with_a_note_are_counted(
    page: str, tool: str, monkeypatch: pytest.MonkeyPatch, users: tuple[User, User]
) -> None:
    caller = client(page, monkeypatch, user=users[0])
    assert await result(caller, tool, note="gift") == 2
    assert (await caller.call_tool(tool, {"note": 5}))["isError"]


async def test_django_stateless_mcp_counts_own_orders(
    monkeypatch: pytest.MonkeyPatch, users: tuple[User, User]
) -> None:
    assert await result(client("django-stateless-mcp", monkeypatch, user=users[0]), "count_orders") == 1
    eve = await User.objects.acreate(username="eve")
    with pytest.raises(InvalidParams):
        await client("django-stateless-mcp", monkeypatch, user=eve).call_tool("count_orders", {})


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("page", ["fastmcp", "bolt-mcp"])
async def test_an_order_is_cancelled_after_a_yes(
    page: str, revision: str, monkeypatch: pytest.MonkeyPatch, users: tuple[User, User]
) -> None:
    for answer, left in ((decline(), 1), (accept(value=False), 1), (accept(value=True), 0)):
        caller = client(page, monkeypatch, user=users[0], revision=revision, elicit=lambda params, a=answer: a)
        await result(caller, "cancel_order", reference="ada-1")
        assert await Order.objects.filter(reference="ada-1").acount() == left


async def test_django_mcp_server_lists_and_counts_own_orders(
    monkeypatch: pytest.MonkeyPatch, users: tuple[User, User]
) -> None:
    caller = client("django-mcp-server", monkeypatch, user=users[1])
    assert await result(caller, "count_orders") == 1
    [row] = (await result(caller, "order_list", filters={"reference__startswith": "bob"}))["items"]
    assert row["reference"] == "bob-1"
    assert "note" not in row
    assert (await caller.call_tool("order_list", {"filters": {"owner__password__startswith": "p"}}))["isError"]


async def test_mcp_django_commands_are_a_list_for_staff(
    monkeypatch: pytest.MonkeyPatch, users: tuple[User, User]
) -> None:
    caller = client("mcp-django", monkeypatch, user=users[0])
    assert "[X] 0001_initial" in await result(caller, "run_command", name="showmigrations")
    assert (await caller.call_tool("run_command", {"name": "flush"}))["isError"]
    eve = await User.objects.acreate(username="eve")
    with pytest.raises(InvalidParams):
        await client("mcp-django", monkeypatch, user=eve).call_tool("run_command", {"name": "check"})


async def test_views_of_an_api_are_tools_with_their_permissions(
    monkeypatch: pytest.MonkeyPatch, users: tuple[User, User]
) -> None:
    views = ModuleType("shop.views")
    views.__dict__["__name__"] = "shop.views"
    served_by("", monkeypatch)  # lets the view import the shop
    [view] = [block for block in python_blocks(PAGES["drf"]) if block.startswith("# before")]
    exec(view, views.__dict__)
    monkeypatch.setitem(sys.modules, "shop.views", views)
    caller = client("drf", monkeypatch, user=users[0])
    assert sorted(tool["name"] for tool in await caller.list_tools()) == [
        "order_create",
        "order_list",
        "order_retrieve",
    ]
    await result(caller, "order_create", reference="ada-2", note="")
    found = await result(caller, "order_list")
    assert sorted(order["reference"] for order in found) == ["ada-1", "ada-2"]
    other = await Order.objects.aget(reference="bob-1")
    assert (await caller.call_tool("order_retrieve", {"pk": str(other.pk)}))["isError"]
