"""Apps over every transport and in every revision, with permissions and scopes."""

import pytest

from tests.interaction.clients import STATELESS
from tests.interaction.transports import contract

pytestmark = pytest.mark.django_db
SERVER = "panels"
MIME_TYPE = "text/html;profile=mcp-app"
DECLARED = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME_TYPE]}}}


async def list_tools(client):
    return {tool["name"]: tool for tool in (await client.request("tools/list")).result["tools"]}


@contract
async def test_a_client_finds_reads_and_calls_an_app(connect, revision):
    client = await connect(server=SERVER, capabilities=DECLARED, token="root")
    tools = await list_tools(client)
    if "_meta" not in tools["show_panel"]:
        assert revision < "2025-06-18"  # entries had no `_meta` before
        return

    ui = tools["show_panel"]["_meta"]["ui"]
    assert ui.keys() == {"resourceUri", "visibility"}
    assert (ui["visibility"], ui["resourceUri"][:26]) == (["model", "app"], "ui://panels/panel/show_pan")
    assert tools["save_panel"]["_meta"]["ui"] == {"visibility": ["app"]}

    reply = await client.request("resources/read", {"uri": ui["resourceUri"]})
    [content] = reply.result["contents"]
    assert (content["uri"], content["mimeType"]) == (ui["resourceUri"], MIME_TYPE)
    assert content["text"].startswith("<!doctype html>")
    if revision == STATELESS:
        assert (reply.result["ttlMs"], reply.result["cacheScope"]) == (86_400_000, "public")
    else:
        assert "ttlMs" not in reply.result

    entries = {entry["uri"]: entry for entry in (await client.request("resources/list")).result["resources"]}
    assert entries[ui["resourceUri"]]["mimeType"] == MIME_TYPE
    result = (await client.request("tools/call", {"name": "show_panel", "arguments": {"number": 3}})).result
    assert (result["content"][0]["text"], result["structuredContent"]) == ("Panel 3", {"html": "<p>3</p>"})


@contract
async def test_a_page_is_readable_for_callers_that_see_its_tool(either):
    uri = (await list_tools(await either(server=SERVER, token="root")))["show_groups"]["_meta"]["ui"]["resourceUri"]
    client = await either(server=SERVER, token="alice")
    assert "show_groups" not in await list_tools(client)
    entries = (await client.request("resources/list")).result["resources"]
    assert uri not in {entry["uri"] for entry in entries}

    hidden = await client.request("resources/read", {"uri": uri}, id=1)
    unknown = await client.request("resources/read", {"uri": "ui://panels/panel/nothing-000000000000.html"}, id=1)
    assert hidden.verdict == unknown.verdict
    called = await client.request("tools/call", {"name": "save_panel", "arguments": {"number": 3}})
    assert not called.served


async def test_a_page_requires_the_scopes_of_its_tool(either):
    client = await either(server=SERVER, token="alice")
    uri = (await list_tools(client))["show_scoped"]["_meta"]["ui"]["resourceUri"]
    called = await client.request("tools/call", {"name": "show_scoped", "arguments": {}}, id=1)
    read = await client.request("resources/read", {"uri": uri}, id=1)
    assert not read.served
    assert called.verdict == read.verdict
