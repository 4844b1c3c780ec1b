"""Lists and calls of a remote through a proxy, in both eras."""

import asyncio
from typing import Any

import pytest

from mcp_django import Context
from mcp_django.auth.authorization.policy import Policy
from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.catalog import catalog_cache
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.protocol.errors import InternalError, InvalidParams, MethodNotFound, ResourceNotFound
from mcp_django.protocol.headers import HeaderParam
from mcp_django.providers.mounts import Mount
from mcp_django.server.primitives.base import Rate
from mcp_django.server.primitives.decorators import register_tool
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server, ports
from tests.support.clock import Clock

from .remote import Remote, peer_of, proxy_of, served

# The SDK warns of features that the newest revision deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
BOTH = pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
TOOLS = ["add", "chatty", "fails", "greet", "places", "poem", "slow", "steps", "twice"]


@BOTH
async def test_entries_of_a_remote_are_listed_under_the_prefix(version: str) -> None:
    peer = peer_of(Remote(), version=version)
    assert await peer.names() == [f"r__{name}" for name in TOOLS]
    assert await peer.names("prompts/list", "prompts") == ["r__plan"]
    assert await peer.names("resources/list", "resources", "uri") == ["thing://one"]
    assert await peer.names("resources/templates/list", "resourceTemplates", "uriTemplate") == ["thing://by/{name}"]


async def test_an_entry_keeps_the_fields_of_the_remote() -> None:
    add = (await peer_of(Remote()).request("tools/list"))["tools"][0]
    assert add == {
        "name": "r__add",
        "title": "Adds",
        "description": "Adds two numbers.",
        "inputSchema": {
            "type": "object",
            "title": "addArguments",
            "properties": {
                "a": {"title": "A", "type": "integer"},
                "b": {"title": "B", "type": "integer", "minimum": 0, "default": 1},
            },
            "required": ["a"],
        },
        "outputSchema": {
            "type": "object",
            "title": "Sum",
            "properties": {"total": {"title": "Total", "type": "integer"}},
            "required": ["total"],
        },
        "annotations": {"readOnlyHint": True},
        "_meta": {"x/y": 1},
    }


async def test_listed_entries_can_be_used(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        for upstream in ["stateless", "handshake"]:
            with subtests.test(version=version, upstream=upstream):
                peer = peer_of(Remote(era=upstream), version=version)
                found = await peer.call("r__add", a=1, b=2)
                assert found["structuredContent"] == {"total": 3}
                assert not found["isError"]
                found = await peer.request("prompts/get", {"name": "r__plan", "arguments": {"city": "Bern"}})
                assert found["messages"] == [{"role": "user", "content": {"type": "text", "text": "Go to Bern"}}]
                for uri, text in (("thing://one", "the first"), ("thing://by/me", "called me")):
                    (contents,) = (await peer.request("resources/read", {"uri": uri}))["contents"]
                    assert contents == {"uri": uri, "mimeType": "text/plain", "text": text}
                params = {"ref": {"type": "ref/prompt", "name": "r__plan"}, "argument": {"name": "city", "value": "Z"}}
                assert (await peer.request("completion/complete", params))["completion"]["values"] == ["Zurich", "Zug"]


async def test_results_do_not_reveal_the_server_info_of_the_remote() -> None:
    found = await peer_of(Remote(era="stateless")).call("r__add", a=1)
    assert found["_meta"] == {"io.modelcontextprotocol/serverInfo": {"name": "tests", "version": "1"}}


async def test_with_a_uri_prefix_uris_have_it_in_lists_reads_and_results() -> None:
    peer = peer_of(Remote(), options={"uri_prefix": "far"})
    assert await peer.names("resources/list", "resources", "uri") == ["far+thing://one"]
    (contents,) = (await peer.request("resources/read", {"uri": "far+thing://by/me"}))["contents"]
    assert contents["uri"] == "far+thing://by/me"
    with pytest.raises(ResourceNotFound):
        await peer.request("resources/read", {"uri": "thing://one"})


async def test_arguments_are_validated_before_the_remote_is_called() -> None:
    remote = Remote()
    said = await peer_of(remote).error("r__add", a="one", b=-1)
    assert "a" in said
    assert remote.counts["add"] == 0


async def test_an_error_of_a_tool_is_forwarded_unchanged() -> None:
    assert await peer_of(Remote()).error("r__fails") == "Error executing tool fails"


async def test_unknown_names_are_unknown_and_without_the_prefix_too() -> None:
    peer = peer_of(Remote())
    for name in ("r__nothing", "add", "r__"):
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await peer.call(name)
    with pytest.raises(InvalidParams, match="Unknown prompt"):
        await peer.request("prompts/get", {"name": "r__nothing"})
    with pytest.raises(ResourceNotFound):
        await peer.request("resources/read", {"uri": "thing://nothing"})


async def test_progress_is_forwarded(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        for upstream in ["stateless", "handshake"]:
            with subtests.test(version=version, upstream=upstream):
                peer = peer_of(Remote(era=upstream), version=version)
                await peer.request("tools/call", {"name": "r__steps", "arguments": {}, "_meta": {"progressToken": "t"}})
                assert [said["params"] for said in peer.received] == [
                    {"progressToken": "t", "progress": number, "total": 3, "message": message}
                    for number, message in ((1, "one"), (2, "two"))
                ]


async def test_log_messages_are_forwarded_at_the_requested_level(subtests: pytest.Subtests) -> None:
    for upstream in ["stateless", "handshake"]:
        with subtests.test(upstream=upstream):
            peer = peer_of(Remote(era=upstream), log_level="info")
            assert await peer.text("r__chatty") == "done"
            (said,) = peer.received
            assert said["params"] == {"level": "info", "data": "half way", "logger": "works"}
            quiet = PipelineClient(peer.server)
            assert await quiet.text("r__chatty") == "done"
            assert quiet.received == []


async def test_without_logging_on_the_server_no_log_message_is_forwarded(subtests: pytest.Subtests) -> None:
    for taken in [True, False]:
        with subtests.test(taken=taken):
            proxy = proxy_of(Remote(), client_features=())
            server = served(proxy).set_options(capabilities={"logging": None} if taken else {})
            assert await PipelineClient(server, log_level="info").text("r__chatty") == "done"
            # A call that receives log messages has a connection of its own.
            assert len(proxy._states.get().sessions) == (0 if taken else 1)


async def test_a_call_that_is_cancelled_is_cancelled_at_the_remote(subtests: pytest.Subtests) -> None:
    for upstream in ["stateless", "handshake"]:
        for capabilities in [{}, {"elicitation": {}}]:
            with subtests.test(upstream=upstream, capabilities=capabilities):
                remote = Remote(era=upstream)
                peer = peer_of(remote, capabilities=capabilities)
                call = asyncio.ensure_future(peer.call("r__slow"))
                await remote.reached.wait()
                call.cancel()
                await remote.cancelled.wait()


async def test_a_call_is_cancelled_at_the_remote_after_its_timeout(clock: Clock, subtests: pytest.Subtests) -> None:
    for capabilities in [{}, {"elicitation": {}}]:
        with subtests.test(capabilities=capabilities):
            remote = Remote()
            peer = peer_of(remote, options={"timeout": 2}, capabilities=capabilities)
            call = asyncio.create_task(peer.error("r__slow"))
            await remote.reached.wait()
            await clock.advance(2)
            assert await call == "The server 'r' did not respond in time"
            await remote.cancelled.wait()


async def test_without_a_permission_only_the_local_principal_has_access() -> None:
    server = served(Remote(), permission=None)
    assert "r__add" in await PipelineClient(server).names()
    stranger = PipelineClient(server, principal=make_principal("shop.view_order"))
    assert await stranger.names() == []
    with pytest.raises(InvalidParams, match="Unknown tool"):
        await stranger.call("r__add", a=1)
    with pytest.raises(ResourceNotFound):
        await stranger.request("resources/read", {"uri": "thing://by/me"})


async def test_the_permission_of_the_proxy_gives_access() -> None:
    server = served(Remote(), permission="shop.use_r")
    assert (await PipelineClient(server, principal=make_principal("shop.use_r")).call("r__add", a=1))[
        "structuredContent"
    ]
    assert await PipelineClient(server, principal=make_principal()).names() == []


async def test_tools_and_prompts_can_be_left_out() -> None:
    peer = peer_of(Remote(), options={"allow": ["a*", "s*", "plan"], "deny": ["s?ow"]})
    assert await peer.names() == ["r__add", "r__steps"]
    assert await peer.names("prompts/list", "prompts") == ["r__plan"]
    with pytest.raises(InvalidParams, match="Unknown tool"):
        await peer.call("r__slow")


async def test_disabled_features_are_not_requested() -> None:
    peer = peer_of(Remote(), options={"features": ["tools"]})
    assert "r__add" in await peer.names()
    with pytest.raises(MethodNotFound):
        await peer.request("resources/read", {"uri": "thing://one"})


async def test_an_unreachable_remote_fails_at_once_and_hides_nothing_else(clock: Clock) -> None:
    remote = Remote(down=True)
    server = served(remote)
    server.tool(lambda: "here", name="mine")
    peer = PipelineClient(server)
    assert await peer.names() == ["mine"]
    assert await peer.error("r__add", a=1) == "The server 'r' cannot be reached now; try again later"
    assert await peer.text("mine") == "here"
    remote.down = False
    await clock.advance(catalog_cache.RETRY_DELAY_SECONDS)
    assert (await peer.call("r__add", a=1))["structuredContent"] == {"total": 2}


async def test_cached_lists_are_served_while_a_remote_is_down(clock: Clock) -> None:
    remote = Remote(era="handshake")
    peer = peer_of(remote, capabilities={})
    assert "r__add" in await peer.names()
    assert await peer.names("resources/list", "resources", "uri")
    await remote.go_down()
    await clock.advance(catalog_cache.DEFAULT_TTL_SECONDS)
    assert "r__add" in await peer.names()
    assert await peer.error("r__add", a=1) == "The server 'r' cannot be reached now; try again later"
    with pytest.raises(InternalError, match="cannot be reached now"):
        await peer.request("resources/read", {"uri": "thing://one"})
    remote.down = False
    assert (await peer.call("r__add", a=1))["structuredContent"] == {"total": 2}


async def test_cached_lists_of_an_unreachable_remote_expire(clock: Clock) -> None:
    remote = Remote(era="handshake")
    peer = peer_of(remote, options={"stale_ttl": 600})
    assert "r__add" in await peer.names()
    await remote.go_down()
    await clock.advance(catalog_cache.DEFAULT_TTL_SECONDS)
    assert "r__add" in await peer.names()
    await clock.advance(600)
    assert await peer.names() == []


async def test_a_list_waits_once_for_a_remote_until_its_timeout(clock: Clock) -> None:
    remote = Remote(silent=True)
    server = served(remote, list_timeout=2)
    server.tool(lambda: "here", name="mine")
    peer = PipelineClient(server)
    first = asyncio.create_task(peer.names())
    await clock.advance(2)
    assert await first == ["mine"]
    assert await peer.names() == ["mine"]
    remote.gate.set()


async def test_a_call_waits_for_a_remote_that_is_starting(clock: Clock, subtests: pytest.Subtests) -> None:
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "tool": ("tools/call", {"name": "r__add", "arguments": {"a": 1}}),
        "prompt": ("prompts/get", {"name": "r__plan", "arguments": {"city": "Bern"}}),
        "resource": ("resources/read", {"uri": "thing://one"}),
        "template": ("resources/read", {"uri": "thing://by/name"}),
    }
    for kind, (method, params) in requests.items():
        for where in ("alone", "mounted"):
            with subtests.test(kind=kind, where=where):
                remote = Remote(silent=True)
                server = served(remote, list_timeout=2)
                if where == "mounted":
                    server = make_server(mounts=[Mount(server, prefix="")])
                peer = PipelineClient(server, capabilities={})
                running = asyncio.create_task(peer.request(method, params))
                await clock.advance(29)
                assert not running.done()
                remote.gate.set()
                found = await running
                assert not found.get("isError")


async def test_a_call_gives_up_on_a_remote_that_is_still_starting(clock: Clock) -> None:
    remote = Remote(silent=True)
    source = TargetSource("r", remote, max_retries=9, startup_timeout=10)
    peer = PipelineClient(make_server(providers=[Proxy(source, permission="any", list_timeout=2)]))
    first = asyncio.create_task(peer.error("r__add", a=1))
    await clock.advance(12)
    assert await first == "The server 'r' is still starting; try again later"
    assert await peer.error("r__add", a=1) == "The server 'r' is still starting; try again later"
    assert await peer.names() == []


async def test_a_starting_remote_delays_no_resource_of_another(clock: Clock) -> None:
    slow, quick = Remote(silent=True), Remote()
    slow_proxy = Proxy(TargetSource("slow", slow, max_retries=0), permission="any", list_timeout=2)
    peer = PipelineClient(make_server(providers=[slow_proxy, proxy_of(quick)]))
    running = asyncio.create_task(peer.request("resources/read", {"uri": "thing://one"}))
    await clock.advance(4)  # each of its two lists
    assert running.done()
    assert (await running)["contents"][0]["text"] == "the first"


async def test_policies_and_rates_apply_to_proxied_tools_by_their_prefixed_names() -> None:
    counted: list[str] = []

    class Counting(Policy):
        """Lets each tool be called once."""

        def is_restricted(self, primitive: Any) -> bool:
            return True

        async def count_use(self, principal: Any, tool: Any) -> float | None:
            assert tool.rate == Rate(1, 60)
            counted.append(tool.name)
            return None if counted.count(tool.name) == 1 else 5.0

    server = served(Remote(), rate="1/m")
    executor = server.ports.executor
    peer = PipelineClient(server.bind(ports(authorizer=Counting(executor), executor=executor)))
    assert (await peer.call("r__add", a=1))["structuredContent"] == {"total": 2}
    assert await peer.error("r__add", a=1) == "r__add was called too often; wait 5 seconds before the next call"


def test_arguments_mirrored_into_headers_are_checked_for_proxied_tools() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    tool = proxy_of(Remote())._components.build("tools", {"name": "t", "inputSchema": schema})
    assert tool.header_params == (HeaderParam(("region",), b"mcp-param-region"),)
    assert tool.wire["inputSchema"] == schema


def test_schemas_of_a_remote_are_converted_for_all_clients() -> None:
    values = {"type": "object", "properties": {"mail": {"type": "string", "format": "email"}, "all": {"type": "array"}}}
    entry = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": values}
    wire = proxy_of(Remote())._components.build("tools", entry).wire
    assert wire["inputSchema"] == {"type": "object", "properties": {}}
    assert wire["outputSchema"]["properties"]["mail"] == {"type": "string"}
    assert "items" in wire["outputSchema"]["properties"]["all"]


async def test_a_server_with_a_proxy_can_be_mounted() -> None:
    inner = served(Remote())
    host = PipelineClient(make_server(mounts=[Mount(inner, prefix="m")]))
    assert "m__r__add" in await host.names()
    assert (await host.call("m__r__add", a=1))["structuredContent"] == {"total": 2}
    assert (await host.call("m__r__add", a=1, toolCallId="call_1"))["structuredContent"] == {"total": 2}
    assert "cannot be reached" not in str(await host.request("resources/read", {"uri": "thing://one"}))


async def test_arguments_added_by_hosts_are_removed_in_a_mount() -> None:
    async def add(a: int) -> int:
        return a + 1

    inner = make_server()
    register_tool(inner.registry, add, None, {})
    host = PipelineClient(make_server(mounts=[Mount(inner, prefix="m")]))
    assert (await host.call("m__add", a=1, toolCallId="call_1"))["structuredContent"] == {"result": 2}


async def test_a_tool_of_a_remote_can_be_offered_in_sampling() -> None:
    server = served(Remote())

    @server.tool
    async def think(ctx: Context) -> str:
        said = await ctx.sample("What is 1 + 2?", tools=["r__add"])
        return said.text

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if len(params["messages"]) == 1:
            use = {"type": "tool_use", "id": "1", "name": "r__add", "input": {"a": 1, "b": 2}}
            return {"role": "assistant", "model": "m", "content": use, "stopReason": "toolUse"}
        (result,) = [params["messages"][-1]["content"]]
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": result["content"][0]["text"]}}

    peer = PipelineClient(server, answer=answer, capabilities={"sampling": {"tools": {}}})
    assert '"total": 3' in await peer.text("think")
