"""Apps of a remote server: the link of the tool and the URI of the page get the same prefix."""

from typing import Any

import pytest

from mcp_django import Server
from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.providers import Mount
from mcp_django.server.primitives.ui_options import convert_app_uris
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server

from .remote import Remote

URI = "ui://apps-remote/panel/show_panel-0123456789ab.html"
MIME_TYPE = "text/html;profile=mcp-app"


@pytest.fixture
def remote() -> Remote:
    remote = Remote()

    @remote.server.tool(meta={"ui": {"resourceUri": URI}, "ui/resourceUri": URI})
    def show_panel() -> str:
        return "panel"

    @remote.server.resource(URI, mime_type=MIME_TYPE, meta={"ui": {"prefersBorder": True}})
    def read_panel() -> str:
        return "<!doctype html><title>Panel</title>"

    return remote


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
@pytest.mark.parametrize(
    ("uri_prefix", "host_prefix"), [(None, "ui://apps-remote/"), ("shop", "ui://shop+apps-remote/")]
)
async def test_a_proxy_passes_the_link_and_the_page(
    remote: Remote, version: str, uri_prefix: str | None, host_prefix: str
) -> None:
    source = TargetSource("r", remote, max_retries=0)
    proxy = Proxy(source, prefix="r", uri_prefix=uri_prefix, permission="any")
    client = PipelineClient(make_server(providers=[proxy]), version=version)
    await check(client, "r__show_panel", f"{host_prefix}panel/show_panel-")


async def test_a_mount_of_a_proxy_converts_both(remote: Remote) -> None:
    source = TargetSource("r", remote, max_retries=0)
    inner = Server("inner", providers=[Proxy(source, prefix="r", uri_prefix="r", permission="any")])
    client = PipelineClient(make_server(mounts=[Mount(inner, prefix="in", uri_prefix="in")]))
    await check(client, "in__r__show_panel", "ui://in+r+apps-remote/panel/show_panel-")


async def check(client: PipelineClient, name: str, uri_start: str) -> None:
    tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
    uri = tools[name]["_meta"]["ui"]["resourceUri"]
    assert uri.startswith(uri_start)
    assert tools[name]["_meta"]["ui/resourceUri"] == uri
    assert uri in await client.names("resources/list", "resources", "uri")
    [content] = (await client.request("resources/read", {"uri": uri}))["contents"]
    assert (content["uri"], content["mimeType"]) == (uri, MIME_TYPE)
    assert content["_meta"]["ui"] == {"prefersBorder": True}


@pytest.mark.parametrize(
    ("meta", "converted"),
    [
        ({"x": 1}, {"x": 1}),
        (
            {"ui": {"resourceUri": "ui://a", "visibility": ["app"]}},
            {"ui": {"visibility": ["app"], "resourceUri": "UI://A"}},
        ),
        ({"ui/resourceUri": "ui://a"}, {"ui/resourceUri": "UI://A"}),
        ({"ui": {"resourceUri": 3}}, {"ui": {}}),
        ({"ui": "text", "ui/resourceUri": 3}, {"ui": "text"}),
    ],
)
def test_links_of_hostile_servers_are_no_failure(meta: dict[str, Any], converted: dict[str, Any]) -> None:
    assert convert_app_uris(meta, str.upper) == converted
