"""A-1 to A-12 of MCP Apps as one table: in both eras, through both doors, direct, behind a mount, a proxy and OAuth."""

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount
from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.fixtures import serve
from tests.interaction.transports import Transport

pytestmark = pytest.mark.django_db
IDENTIFIER = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
DECLARED = {"extensions": {IDENTIFIER: {"mimeTypes": [MIME_TYPE]}}}
EXTENSIONS = ["mcp_django.contrib.apps.Apps"]
PROXY = "tests.interaction.panels.create_proxy"
SERVERS: dict[str, dict[str, Any]] = {
    "default": {"NAME": "default"},
    "panels": {"NAME": "panels", "STORED": False, "EXTENSIONS": EXTENSIONS},
    "framed": {"NAME": "framed", "STORED": False, "EXTENSIONS": EXTENSIONS, "MOUNTS": {"far": "panels"}},
    "relayed": {"NAME": "relayed", "STORED": False, "EXTENSIONS": EXTENSIONS, "PROVIDERS": [PROXY]},
}
CSP = {"connectDomains": ["https://api.example.com"]}


@pytest.fixture(autouse=True)
def _served(settings: Any) -> None:
    serve(settings, SERVERS)


@dataclass
class Place:
    """A server with the panels, as one client sees it."""

    client: Client
    plain: Client
    """Client of the same user that declares no extension."""
    prefix: str
    tools: dict[str, Any]
    entries: dict[str, Any]
    """Entries of the list of resources, by URI."""
    tool: str = "show_panel"

    @property
    def ui(self) -> dict[str, Any]:
        found: dict[str, Any] = self.tools[f"{self.prefix}{self.tool}"]["_meta"]["ui"]
        return found

    async def read(self, uri: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the content of a page, and the whole result."""
        result = (await self.client.request("resources/read", {"uri": uri})).result
        [content] = result["contents"]
        return content, result

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.client.request("tools/call", {"name": f"{self.prefix}{tool}", "arguments": arguments})


async def a_1_the_server_declares_the_extension(place: Place) -> None:
    assert place.client.hello["capabilities"]["extensions"][IDENTIFIER] == {}


async def a_2_a_page_is_html_under_its_own_uri(place: Place) -> None:
    content, _ = await place.read(place.ui["resourceUri"])
    assert (content["uri"], content["mimeType"]) == (place.ui["resourceUri"], MIME_TYPE)
    assert content["uri"].startswith("ui://")
    assert content["text"].lower().startswith("<!doctype html>")
    assert place.entries[content["uri"]]["name"] == "panel"


async def a_3_each_linked_page_can_be_read_where_its_tool_is_listed(place: Place) -> None:
    links = {name: tool["_meta"]["ui"]["resourceUri"] for name, tool in place.tools.items() if _has_link(tool)}
    assert set(links.values()) == set(place.entries)
    for name, uri in links.items():
        read = await place.client.request("resources/read", {"uri": uri}, id=1)
        if not read.served:  # a scope is missing, as for a call
            called = await place.client.request("tools/call", {"name": name, "arguments": {}}, id=1)
            assert called.result["isError"] if called.served else called.verdict == read.verdict


def _has_link(tool: dict[str, Any]) -> bool:
    return "resourceUri" in tool.get("_meta", {}).get("ui", {})


async def a_4_the_visibility_is_a_list_of_model_and_app(place: Place) -> None:
    assert place.ui["visibility"] == ["model", "app"]
    assert not any("ui/resourceUri" in tool.get("_meta", {}) for tool in place.tools.values())


async def a_5_a_tool_has_no_policy(place: Place) -> None:
    for tool in place.tools.values():
        assert set(tool.get("_meta", {}).get("ui", {})) <= {"resourceUri", "visibility"}


async def a_6_the_policy_is_on_the_content_and_in_the_list(place: Place) -> None:
    content, _ = await place.read(place.ui["resourceUri"])
    assert content["_meta"]["ui"] == {"csp": CSP, "prefersBorder": True}
    assert place.entries[content["uri"]]["_meta"]["ui"] == content["_meta"]["ui"]


async def a_7_no_page_has_a_domain_unless_it_is_declared(place: Place) -> None:
    assert not any("domain" in entry["_meta"]["ui"] for entry in place.entries.values())


async def a_8_a_page_has_a_digest_and_no_data_of_its_reader(place: Place) -> None:
    content, _ = await place.read(place.ui["resourceUri"])
    digest = hashlib.sha256(content["text"].encode()).hexdigest()
    assert content["uri"].endswith(f"-{digest[:12]}.html")


async def a_9_the_result_has_text_for_the_model_and_data_for_the_page(place: Place) -> None:
    arguments = {"number": 3} if place.tool == "show_panel" else {}
    result = (await place.call(place.tool, **arguments)).result
    assert result["content"][0]["text"] == ("Panel 3" if place.tool == "show_panel" else "more")
    assert result["structuredContent"]


async def a_10_the_links_do_not_depend_on_the_capabilities_of_the_client(place: Place) -> None:
    listed = {tool["name"]: tool for tool in (await place.plain.request("tools/list")).result["tools"]}
    questions = {name for name in place.tools if name.endswith("answer_question")}
    assert listed == {name: tool for name, tool in place.tools.items() if name not in questions}


async def a_11_tools_for_apps_are_listed_and_keep_their_permission(place: Place) -> None:
    is_listed = f"{place.prefix}save_panel" in place.tools
    reply = await place.call("save_panel", number=3)
    if is_listed:
        assert place.tools[f"{place.prefix}save_panel"]["_meta"]["ui"] == {"visibility": ["app"]}
        assert reply.result["content"][0]["text"] == "saved 3"
    else:
        assert not reply.served
    assert is_listed == (place.client.token == "root")


async def a_12_clients_may_cache_a_page(place: Place) -> None:
    _, result = await place.read(place.ui["resourceUri"])
    if place.client.revision == STATELESS:
        # A proxy does not know the readers of a remote page.
        is_remote, is_public = place.prefix == "r__", place.tool == "show_panel"
        expected = (0, "private") if is_remote else (86_400_000, "public" if is_public else "private")
        assert (result["ttlMs"], result["cacheScope"]) == expected
    else:
        assert "ttlMs" not in result


RULES = [rule for name, rule in globals().items() if re.match(r"a_\d+_", name)]
PLACES = {
    "direct": ("panels", "", "root", "show_panel"),
    "mount": ("framed", "far__", "root", "show_panel"),
    "proxy": ("relayed", "r__", "root", "show_panel"),
    # The scope of a token, and no permission of Django.
    "oauth": ("panels", "", "painter", "show_scoped"),
    "oauth and mount": ("framed", "far__", "painter", "show_scoped"),
}


def test_the_table_is_complete() -> None:
    assert [int(rule.__name__.split("_")[1]) for rule in RULES] == list(range(1, 13))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("door", ["asgi", "view"])
@pytest.mark.parametrize("revision", [STATELESS, HANDSHAKE[-1]])
async def test_the_rules_of_apps_hold(place: str, door: str, revision: str, subtests: pytest.Subtests) -> None:
    server, prefix, token, tool = PLACES[place]
    transport = (
        Transport(lambda: mount(get_asgi_application())) if door == "asgi" else Transport(get_asgi_application, "/view")
    )
    client = await Client(transport, revision, server=server, token=token, capabilities=DECLARED).open()
    plain = await Client(transport, revision, server=server, token=token, capabilities={}).open()
    tools = (await client.request("tools/list")).result["tools"]
    entries = (await client.request("resources/list")).result["resources"]
    found = Place(
        client, plain, prefix, {one["name"]: one for one in tools}, {one["uri"]: one for one in entries}, tool
    )
    for rule in RULES:
        with subtests.test(rule=rule.__name__):
            await rule(found)
