"""The examples of the pages about several servers run against servers in memory."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings

from mcp_django import conf
from mcp_django.client import aclose_clients, close_clients
from mcp_django.client.multi_client import BlockingBridge, Bridge
from mcp_django.client.pool import factory
from mcp_django.conf.clients import ClientSettings
from tests.client.script import Script
from tests.repository.pages import ROOT, python_blocks

DOCS = ROOT / "docs"
HOWTO, BRIDGE, REFERENCE = (
    DOCS / "use-servers/first-server.md",
    DOCS / "use-servers/bridge.md",
    DOCS / "reference/settings-clients.md",
)
TOOLS = ["forecast", "get_now", "delete_map", "route"]


def answer(params: Any) -> Any:
    said = {"city": params["arguments"].get("city")}
    return {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}


@pytest.fixture(autouse=True)
def _servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connect every alias of the pages to a server in memory."""
    listed = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    monkeypatch.setattr(
        factory, "create_target", lambda settings, user: Script("stateless", tools_list=listed, tools_call=answer)
    )
    entries = {alias: {"URL": f"https://{alias}.example/mcp"} for alias in ("weather", "maps")}
    with override_settings(MCP={"CLIENTS": entries}):
        yield
        close_clients()


async def run_block(block: str, **names: Any) -> dict[str, Any]:
    """Run a block that may await."""
    namespace = {"__name__": "example", "Bridge": Bridge, **names}
    result = eval(compile(block, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
    if inspect.isawaitable(result):
        await result
    return namespace


async def test_the_examples_of_the_page_about_bridges_run() -> None:
    used, _, model, filtered, told = python_blocks(BRIDGE)
    assert (await run_block(used))["result"].structured_content == {"city": "Zürich"}
    async with (await run_block(filtered))["bridge"] as bridge:
        assert bridge.tool_names() == ["weather__get_now", "maps__forecast", "maps__get_now", "maps__route"]
        await run_block(told, bridge=bridge)
    replies = [
        SimpleNamespace(content="", calls=[SimpleNamespace(id="1", name="maps__route", arguments={"city": "Oslo"})]),
        SimpleNamespace(content="There.", calls=[]),
    ]
    seen: list[Any] = []

    async def api(messages: Any, tools: Any) -> Any:
        seen.append((len(messages), len(tools)))
        return replies.pop(0)

    assert await (await run_block(model))["answer"]("Where?", api) == "There."
    assert seen == [(1, 8), (3, 8)]
    await aclose_clients()


def test_the_bridge_without_an_event_loop_runs() -> None:
    exec(python_blocks(BRIDGE)[1], {"Bridge": Bridge})


async def test_the_examples_of_the_howto_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.tool", lambda **options: lambda function: function)
    _, waiting, _ = python_blocks(HOWTO)
    found = await run_block(waiting)
    response = await found["forecast"](None, "Oslo")
    assert json.loads(response.content) == {"city": "Oslo"}
    assert json.loads(await found["delivery_weather"]("Bern")) == {"city": "Bern"}
    await aclose_clients()


def test_the_examples_of_the_howto_for_plain_views_run() -> None:
    names: dict[str, Any] = {}
    exec("from django.http import JsonResponse\nfrom mcp_django.client import get_client\n", names)
    exec(python_blocks(HOWTO)[2], names)
    assert json.loads(names["plain_forecast"](None, "Oslo").content) == {"city": "Oslo"}


def test_the_shown_settings_are_valid(subtests: pytest.Subtests) -> None:
    for block in [*python_blocks(REFERENCE)[:1], *python_blocks(HOWTO)[:1]]:
        with subtests.test(block=block):
            names: dict[str, Any] = {}
            exec(block, names)
            with override_settings(MCP=names["MCP"]):
                assert conf.get_settings().clients.keys() == names["MCP"]["CLIENTS"].keys()


def test_every_key_is_on_the_page_with_its_default() -> None:
    table = REFERENCE.read_text(encoding="utf-8").partition("## AUTH of a client")[0]
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \|.*?\| `([^`]*)`(?: \([^|]*\))? \|", table, re.MULTILINE))
    fields = {name.upper(): field for name, field in ClientSettings.__dataclass_fields__.items() if name != "alias"}
    assert rows.keys() == fields.keys()
    for key in ("TIMEOUT", "STARTUP_TIMEOUT", "MAX_RETRIES", "BACKOFF", "IDLE", "MAX_OWNERS"):
        assert float(rows[key]) == fields[key].default


def test_the_page_names_all_methods_of_a_bridge() -> None:
    page = BRIDGE.read_text()
    for kind in (Bridge, BlockingBridge):
        public = [name for name in vars(kind) if not name.startswith("_")]
        assert [name for name in public if name not in page] == []
