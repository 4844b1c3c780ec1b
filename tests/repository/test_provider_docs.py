"""The examples of the page on providers, which use public names alone."""

from functools import partial
from typing import Any

import httpx
import pytest

from mcp_django.extensions import http_client
from mcp_django.testing import TestClient
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import make_server

PAGE = ROOT / "docs" / "expose" / "providers.md"
ADDRESS = "93.184.216.34"


def find_block(words: str) -> str:
    """Return the one block of the page that has these words."""
    (found,) = (text for text in python_blocks(PAGE) if words in text)
    return found


def connect_to(respond: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client of the page resolve each host to an address, and answer by a function."""

    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    transport = partial(httpx.MockTransport, respond)
    offline = partial(http_client.SafeHTTPClient, resolve=resolve, transport=transport)
    monkeypatch.setattr(http_client, "SafeHTTPClient", offline)


def serve_services() -> TestClient:
    """Serve the provider of the page."""
    names: dict[str, Any] = {"__name__": "shop.services"}
    exec(find_block("class Services"), names)
    return TestClient(make_server(providers=[names["services"]]))


async def test_a_provider_sends_checked_arguments_to_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        received.append(request)
        return httpx.Response(200, json={"price": 12})

    connect_to(respond, ADDRESS, monkeypatch)
    client = serve_services()
    assert [tool["name"] for tool in await client.list_tools()] == ["quote"]

    result = await client.call_tool("quote", {"weight": 3})
    assert result["structuredContent"] == {"price": 12}
    assert [(request.headers["host"], request.url.path, request.content) for request in received] == [
        ("services.example.com", "/quote", b'{"weight": 3}')
    ]
    assert (await client.call_tool("quote", {"weight": 0}))["isError"]
    assert len(received) == 1


async def test_the_service_of_a_provider_is_not_reached_at_a_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    connect_to(lambda request: httpx.Response(200, json={}), "10.0.0.7", monkeypatch)
    result = await serve_services().call_tool("quote", {"weight": 3})
    assert result["isError"]
    assert "not on the public internet" in result["content"][0]["text"]


async def test_a_tool_calls_a_view_as_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    _, registry = served_by(find_block("def greeting"), monkeypatch)
    result = await TestClient(make_server(registry=registry)).call_tool("greet", {"name": "Ada"})
    assert result["content"][0]["text"] == "Hello Ada from /greeting/"
