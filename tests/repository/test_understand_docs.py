"""The examples of the landing page and of "MCP in five minutes", served and called."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_django.server.server import Server
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, accept, make_principal, ports

DOCS = ROOT / "docs"


def client_of(page: str, monkeypatch: pytest.MonkeyPatch, **peer: Any) -> PipelineClient:
    """Serve the one example of a page."""
    (block,) = python_blocks(DOCS / page)
    _, found = served_by(block, monkeypatch)
    return PipelineClient(Server("docs", "1", registry=found, ports=ports()), **peer)


@pytest.mark.django_db
async def test_the_start_page_deactivates_a_user_after_a_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    await User.objects.acreate(username="ada")
    for answer, text, active in (
        ({"action": "decline"}, "Left as it was.", True),
        (accept(value=True), "Done.", False),
    ):
        client = client_of("index.md", monkeypatch, answer=lambda *_, given=answer: given)
        assert await client.text("deactivate", username="ada") == text
        [row] = (await client.call("user_list"))["structuredContent"]["items"]
        assert row["is_active"] is active
        assert "password" not in row


async def test_the_start_page_hides_the_tool_without_its_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of("index.md", monkeypatch, principal=make_principal())
    assert "deactivate" not in await client.names()


async def test_a_tool_a_resource_and_a_prompt_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of("understand/mcp.md", monkeypatch)
    assert await client.text("cancel_order", number=7) == "Order 7 is cancelled."

    read = await client.request("resources/read", {"uri": "shop://orders/7"})
    assert read["contents"][0]["text"] == "Order 7: two cups."

    got = await client.request("prompts/get", {"name": "review", "arguments": {"number": "7"}})
    assert "shop://orders/7" in got["messages"][0]["content"]["text"]
