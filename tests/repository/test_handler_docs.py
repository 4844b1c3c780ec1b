"""The examples of the pages on the context, sampling, streams and servers, called in both eras."""

import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings

from mcp_django import MCPError, Server, conf, signals
from mcp_django.extensions import InvalidParams
from mcp_django.testing import TestClient
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server

DOCS = ROOT / "docs"
VERSIONS = (HANDSHAKE, STATELESS)


def block(page: str, words: str) -> str:
    """Return the one block of a page that has these words."""
    (found,) = (text for text in python_blocks(DOCS / page) if words in text)
    return found


def serve(page: str, words: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Server]:
    """Run the block of a page, and serve its declarations."""
    module, registry = served_by(block(page, words), monkeypatch)
    return module, make_server(registry=registry)


async def call(server: Server, version: str, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
    """Return the text of a tool's result."""
    result = await TestClient(server, revision=version, **options).call_tool(name, arguments or {})
    assert not result.get("isError"), result
    text: str = result["content"][0]["text"]
    return text


def answers(*replies: Any) -> Callable[[dict[str, Any]], Any]:
    """Answer requests for completions with these replies, in order."""
    remaining = iter(replies)
    return lambda params: next(remaining)


def uses_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Build the answer of a model that uses a tool."""
    use = {"type": "tool_use", "id": "use-1", "name": name, "input": arguments}
    return {"role": "assistant", "content": [use], "model": "test", "stopReason": "toolUse"}


async def test_the_context_has_the_caller_and_dependencies(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "talk-back/context.md"
    for version in VERSIONS:
        _, server = serve(page, "def greet_me", monkeypatch)
        assert await call(server, version, "greet_me") == "Welcome, guest"
        _, server = serve(page, "def greet(", monkeypatch)
        headers = {"X-House": "lake"}
        assert await call(server, version, "greet", headers=headers) == "Welcome to the lake house"
        _, server = serve(page, "def pay(", monkeypatch)
        assert await call(server, version, "pay", {"amount": 5}, headers=headers) == "5 paid in the lake house"


async def test_the_example_asks_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "talk-back/sampling.md"
    triage = '```json\n{"urgent": true, "department": "Post"}\n```'
    for version in VERSIONS:
        _, server = serve(page, "def summarise", monkeypatch)
        assert await call(server, version, "summarise", {"text": "long"}, sample=answers("Short.")) == "Short."
        _, server = serve(page, "def triage", monkeypatch)
        letter = {"letter": "Dear all"}
        assert await call(server, version, "triage", letter, sample=answers("?", triage)) == "Post, now"


async def test_the_model_uses_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "talk-back/sampling.md"
    for version in VERSIONS:
        _, server = serve(page, "def answer_customer", monkeypatch)
        script = answers(uses_tool("order_status", {"number": 7}), "It is on its way.")
        assert await call(server, version, "answer_customer", {"question": "?"}, sample=script) == "It is on its way."
        _, server = serve(page, "def plan_walk", monkeypatch)
        assert await call(server, version, "plan_walk", sample=answers(uses_tool("weather", {}), "North")) == "North"


async def test_a_step_runs_at_most_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, server = serve("talk-back/questions.md", "durable=True", monkeypatch)
    for version in VERSIONS:
        assert await call(server, version, "pay", {"invoice": 1}) == "Paid: receipt 4711"


async def test_a_call_survives_a_request_to_close_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    _, server = serve("run/streams.md", "def survey", monkeypatch)
    for version in VERSIONS:
        assert await call(server, version, "survey") == "Surveyed"


async def test_a_provider_lists_and_calls() -> None:
    names: dict[str, Any] = {}
    exec(block("run/several-servers.md", "menu: Provider"), names)
    server = make_server(providers=[names["menu"]])
    for version in VERSIONS:
        assert [item["name"] for item in await TestClient(server, revision=version).list_tools()] == ["order_soup"]
        assert await call(server, version, "order_soup") == "order_soup: coming"


async def test_middleware_logs_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    names: dict[str, Any] = {"__name__": "hotel.mcp"}
    exec(block("run/several-servers.md", "async def audit"), names)
    server = make_server(middleware=[names["audit"]])

    @server.tool
    def rooms() -> int:
        return 7

    with caplog.at_level(logging.INFO, "hotel.mcp"):
        await TestClient(server).list_tools()
    assert "tools/list by local" in caplog.messages


async def test_middleware_sets_the_tenant_of_a_call() -> None:
    names: dict[str, Any] = {}
    exec(block("run/tenants-and-language.md", "async def of_the_url"), names)
    server = make_server(middleware=[names["of_the_url"]])

    @server.tool
    def house() -> str:
        tenant: str = names["TENANT"].get()
        return tenant

    for version in VERSIONS:
        assert await call(server, version, "house", kwargs={"tenant": "lake"}) == "lake"
        assert await call(server, version, "house", headers={"X-Tenant": "hill"}) == "hill"
        with pytest.raises(MCPError, match="X-Tenant"):
            await call(server, version, "house")


async def test_code_without_a_context_finds_the_caller() -> None:
    names: dict[str, Any] = {}
    exec(block("run/observability.md", "def who_asks"), names)
    server = make_server()
    server.tool(names["who_asks"])
    assert names["who_asks"]() == "nobody"
    assert await call(server, STATELESS, "who_asks") == "local"


def test_receivers_count_subscriptions() -> None:
    names: dict[str, Any] = {}
    exec(block("talk-back/subscriptions.md", "def watch"), names)
    facts = {"uri": "a://b", "server": "default", "owner": "x", "session": None}
    signals.subscribed.send(None, **facts)
    assert names["WATCHED"]["a://b"] == 1
    signals.unsubscribed.send(None, **facts)
    assert names["WATCHED"]["a://b"] == 0


async def test_an_extension_has_lists_with_pages_and_errors() -> None:
    names: dict[str, Any] = {"__name__": "notes"}
    exec(block("talk-back/extensions.md", "class Notes"), names)
    capabilities = {"extensions": {"com.example/notes": {}}}
    client = PipelineClient(make_server(extensions=[names["Notes"]()]), capabilities=capabilities)
    first = await client.request("notes/list")
    second = await client.request("notes/list", {"cursor": first["nextCursor"]})
    assert (*first["notes"], *second["notes"]) == names["Notes"].notes
    assert "nextCursor" not in second
    assert (await client.request("notes/get", {"number": 1}))["note"] == "feed the cat"
    for method, params in (("notes/get", {"number": 3}), ("notes/list", {"cursor": "x"})):
        with pytest.raises(InvalidParams):
            await client.request(method, params)


def test_settings_of_the_pages_can_be_used(subtests: pytest.Subtests) -> None:
    for page in ("run/legacy-sse.md", "run/several-servers.md", "run/tenants-and-language.md"):
        for text in python_blocks(DOCS / page):
            if "MCP = {" in text and "import" not in text:
                names: dict[str, Any] = {}
                exec(text, names)
                with subtests.test(page=page), override_settings(MCP=names["MCP"]):
                    assert conf.get_problems() == []
