"""Servers and toolsets within a server: their lists, their calls, and their own names."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
import pytest

from mcp_django import Context, MCPError, Server, ToolError, Toolset, completion, prompt, resource, tool
from mcp_django.contrib.openapi import OpenAPIToolset
from mcp_django.protocol.content import EmbeddedResource, ResourceLink, TextResourceContents
from mcp_django.protocol.errors import InsufficientScope, InvalidParams, ResourceNotFound
from mcp_django.providers.mounts import Mount
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.provider import Provider
from mcp_django.server.options import ServerOptions
from mcp_django.server.primitives.base import Prompt, Resource, ResourceTemplate, Tool
from mcp_django.server.subscriptions.filter import can_read
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_principal, make_server
from tests.support.clock import Clock

pytestmark = pytest.mark.filterwarnings("error")


class Weather(Toolset):
    """A regular toolset."""

    prefix = "city_"

    @tool
    async def forecast(self, city: str) -> str:
        return f"{city}: sunny"

    @prompt
    def report(self, city: str) -> str:
        return f"Report on {city}"

    @resource("city://{name}")
    def city(self, name: str) -> str | None:
        return None if name == "atlantis" else f"{name} it is"

    @completion("city://{name}", "name")
    def names(self, value: str) -> list[str]:
        return [name for name in ("zurich", "zug") if name.startswith(value)]


def weather(**given: Any) -> Server:
    """Build a server without a host."""
    server = Server("Weather", "2", **given)

    @server.tool
    async def forecast(city: str) -> str:
        """Return the forecast."""
        return f"{city}: rain"

    @server.tool
    async def whoami(ctx: Context) -> dict[str, Any]:
        return {"tool": ctx.tool_name, "server": ctx.server.info.name, "arguments": dict(ctx.arguments)}

    @server.tool
    def blocking(ctx: Context, city: str) -> str:
        return f"{ctx.tool_name} of {city}"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Where?", str)
        return f"{answer.data}"

    @server.tool
    async def pointing() -> Any:
        return [
            ResourceLink("city://zurich", "Zürich"),
            EmbeddedResource(TextResourceContents("text", "city://bern")),
            ResourceLink("https://example.com", "elsewhere"),
        ]

    @server.prompt
    async def report(city: str, ctx: Context) -> str:
        return f"{ctx.name}: report on {city}"

    @server.resource("city://{name}")
    async def city(name: str) -> str | None:
        return None if name == "atlantis" else f"{name} it is"

    @server.resource("weather://now", mime_type="text/plain")
    async def now() -> str:
        return "rain"

    @server.completion("report", "city")
    async def cities(value: str) -> list[str]:
        return [name for name in ("zurich", "zug", "bern") if name.startswith(value)]

    @server.completion("city://{name}", "name")
    async def names(value: str) -> list[str]:
        return [name for name in ("lugano", "locarno") if name.startswith(value)]

    return server


def host(*mounts: Mount, **given: Any) -> PipelineClient:
    """Build a client of a server with these mounts."""
    return PipelineClient(make_server(mounts=mounts, **given))


async def completed(peer: PipelineClient, ref: dict[str, str], argument: str, value: str) -> list[str]:
    params = {"ref": ref, "argument": {"name": argument, "value": value}}
    return list((await peer.request("completion/complete", params))["completion"]["values"])


# Names


async def test_tools_and_prompts_have_the_prefix_and_resources_keep_their_uris() -> None:
    peer = host(Mount(weather(), prefix="w"))
    assert await peer.names() == ["w__ask", "w__blocking", "w__forecast", "w__pointing", "w__whoami"]
    assert await peer.names("prompts/list", "prompts") == ["w__report"]
    assert await peer.names("resources/list", "resources", "uri") == ["weather://now"]
    assert await peer.names("resources/templates/list", "resourceTemplates", "uriTemplate") == ["city://{name}"]


async def test_every_listed_primitive_can_be_used(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        with subtests.test(version=version):
            peer = host(Mount(weather(), prefix="w"))
            peer = PipelineClient(peer.server, version=version)
            assert await peer.text("w__forecast", city="Bern") == "Bern: rain"
            assert await peer.text("w__blocking", city="Bern") == "blocking of Bern"
            found = await peer.request("prompts/get", {"name": "w__report", "arguments": {"city": "Bern"}})
            assert found["messages"][0]["content"]["text"] == "report: report on Bern"
            found = await peer.request("resources/read", {"uri": "city://bern"})
            assert found["contents"] == [{"uri": "city://bern", "mimeType": "text/plain", "text": "bern it is"}]


async def test_its_own_names_are_unknown_in_the_host() -> None:
    peer = host(Mount(weather(), prefix="w"))
    with pytest.raises(InvalidParams, match="Unknown tool"):
        await peer.call("forecast", city="Bern")
    with pytest.raises(InvalidParams, match="Unknown prompt"):
        await peer.request("prompts/get", {"name": "report", "arguments": {"city": "x"}})


async def test_a_handler_sees_its_own_name_and_server() -> None:
    found = await host(Mount(weather(), prefix="w")).call("w__whoami")
    assert found["structuredContent"] == {"tool": "whoami", "server": "Weather", "arguments": {}}


async def test_an_empty_prefix_keeps_names() -> None:
    assert await host(Mount(weather(), prefix="")).text("forecast", city="Bern") == "Bern: rain"


async def test_the_list_entry_is_that_of_the_server_but_for_the_name() -> None:
    server = weather()
    (theirs,) = [
        one
        for one in (await PipelineClient(make_server(registry=server.registry)).request("tools/list"))["tools"]
        if one["name"] == "forecast"
    ]
    (here,) = [
        one
        for one in (await host(Mount(server, prefix="w")).request("tools/list"))["tools"]
        if one["name"] == "w__forecast"
    ]
    assert here == {**theirs, "name": "w__forecast"}


async def test_completions_use_the_names_of_the_host() -> None:
    peer = host(Mount(weather(), prefix="w"))
    assert await completed(peer, {"type": "ref/prompt", "name": "w__report"}, "city", "z") == ["zurich", "zug"]
    assert await completed(peer, {"type": "ref/resource", "uri": "city://{name}"}, "name", "l") == ["lugano", "locarno"]
    with pytest.raises(InvalidParams):
        await completed(peer, {"type": "ref/prompt", "name": "report"}, "city", "z")


async def test_a_mounted_tool_may_request_input(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        with subtests.test(version=version):
            server = make_server(mounts=[Mount(weather(), prefix="w")])
            peer = PipelineClient(server, version=version, answer=lambda method, params: accept(value="Bern"))
            assert await peer.text("w__ask") == "Bern"


async def test_the_state_of_an_input_request_is_valid_for_its_tool_only() -> None:
    server = make_server(mounts=[Mount(weather(), prefix="a"), Mount(weather(), prefix="b", uri_prefix="b")])
    peer = PipelineClient(server)
    asked = await peer.call("a__ask")
    again = {"requestState": asked["requestState"], "arguments": {}}
    with pytest.raises(MCPError):
        await peer.request("tools/call", {"name": "b__ask", **again})
    assert (await peer.request("tools/call", {"name": "a__ask", **again}))["resultType"] == "input_required"


# Prefixes of URIs


async def test_with_a_uri_prefix_resources_have_it_everywhere() -> None:
    peer = host(Mount(weather(), prefix="w", uri_prefix="w"))
    assert await peer.names("resources/list", "resources", "uri") == ["w+weather://now"]
    assert await peer.names("resources/templates/list", "resourceTemplates", "uriTemplate") == ["w+city://{name}"]
    found = await peer.request("resources/read", {"uri": "w+city://bern"})
    assert found["contents"] == [{"uri": "w+city://bern", "mimeType": "text/plain", "text": "bern it is"}]
    with pytest.raises(ResourceNotFound):
        await peer.request("resources/read", {"uri": "city://bern"})
    ref = {"type": "ref/resource", "uri": "w+city://{name}"}
    assert await completed(peer, ref, "name", "lo") == ["locarno"]


async def test_results_name_resources_as_the_host_does() -> None:
    blocks = (await host(Mount(weather(), prefix="w", uri_prefix="w")).call("w__pointing"))["content"]
    uris = [block["resource"]["uri"] if "resource" in block else block["uri"] for block in blocks]
    assert uris == ["w+city://zurich", "w+city://bern", "https://example.com"]


async def test_a_missing_resource_is_reported_by_the_requested_uri() -> None:
    peer = host(Mount(weather(), prefix="w", uri_prefix="w"))
    with pytest.raises(ResourceNotFound) as problem:
        await peer.request("resources/read", {"uri": "w+city://atlantis"})
    assert problem.value.data == {"uri": "w+city://atlantis"}


# Toolsets


async def test_a_toolset_is_mounted_with_its_own_prefix_after_that_of_the_mount() -> None:
    peer = host(Mount(Weather, prefix="a"), Mount(Weather(), prefix="b", uri_prefix="b"))
    assert await peer.names() == ["a__city_forecast", "b__city_forecast"]
    assert await peer.text("b__city_forecast", city="Bern") == "Bern: sunny"
    assert await completed(peer, {"type": "ref/resource", "uri": "b+city://{name}"}, "name", "zu") == ["zurich", "zug"]
    found = await peer.request("prompts/get", {"name": "a__city_report", "arguments": {"city": "Bern"}})
    assert found["messages"][0]["content"]["text"] == "Report on Bern"


def test_other_objects_are_refused(subtests: pytest.Subtests) -> None:
    for what in [object(), "weather", 3, object]:
        with subtests.test(what=what), pytest.raises(DeclarationError, match="a server or a toolset"):
            Mount(what, prefix="w")


# The same server twice, and servers in servers


async def test_one_server_is_mounted_twice() -> None:
    server = weather()
    peer = host(Mount(server, prefix="a"), Mount(server, prefix="b"))
    assert await peer.text("a__forecast", city="Bern") == await peer.text("b__forecast", city="Bern") == "Bern: rain"
    # There is one resource, by one URI.
    assert await peer.names("resources/list", "resources", "uri") == ["weather://now"]


async def test_a_server_within_a_server_within_a_server() -> None:
    inner = weather()
    outer = Server("Outer", mounts=[Mount(inner, prefix="w", uri_prefix="w")])
    peer = host(Mount(outer, prefix="o", uri_prefix="o"))
    assert await peer.text("o__w__forecast", city="Bern") == "Bern: rain"
    assert (await peer.call("o__w__whoami"))["structuredContent"]["tool"] == "whoami"
    found = await peer.request("resources/read", {"uri": "o+w+city://bern"})
    assert found["contents"][0]["uri"] == "o+w+city://bern"
    blocks = (await peer.call("o__w__pointing"))["content"]
    assert blocks[0]["uri"] == "o+w+city://zurich"
    ref = {"type": "ref/prompt", "name": "o__w__report"}
    assert await completed(peer, ref, "city", "b") == ["bern"]


# Later registrations


async def test_later_registrations_and_removals_take_effect() -> None:
    server = weather()
    peer = host(Mount(server, prefix="w"))
    before = peer.server.registry.version

    @server.tool
    async def late() -> str:
        return "late"

    assert peer.server.registry.version > before
    assert await peer.text("w__late") == "late"
    server.registry.tools.remove("late")
    with pytest.raises(InvalidParams):
        await peer.call("w__late")
    assert "w__late" not in await peer.names()


async def test_the_host_keeps_its_own_registrations() -> None:
    server = weather()
    peer = host(Mount(server, prefix="w"))

    @peer.server.tool
    async def own() -> str:
        return "own"

    assert await peer.text("own") == "own"
    assert "own" not in server.registry.tools


# Policies


async def test_permissions_and_scopes_hold_in_the_host() -> None:
    server = weather()

    @server.tool(permission="weather.secret")
    async def secret() -> str:
        return "secret"

    @server.tool(scopes=["weather"])
    async def scoped() -> str:
        return "scoped"

    @server.resource("secret://x", permission="weather.secret")
    async def hidden() -> str:
        return "x"

    serving = make_server(mounts=[Mount(server, prefix="w")])
    stranger = PipelineClient(serving, make_principal())
    assert "w__secret" not in await stranger.names()
    assert "w__scoped" in await stranger.names()
    assert "secret://x" not in await stranger.names("resources/list", "resources", "uri")
    with pytest.raises(InvalidParams, match="Unknown tool: w__secret"):
        await stranger.call("w__secret")
    with pytest.raises(InsufficientScope):
        await stranger.call("w__scoped")
    with pytest.raises(ResourceNotFound):
        await stranger.request("resources/read", {"uri": "secret://x"})
    friend = PipelineClient(serving, make_principal("weather.secret", scopes=["weather"]))
    assert await friend.text("w__secret") == "secret"
    assert await friend.text("w__scoped") == "scoped"


async def test_a_mount_may_require_more_permissions() -> None:
    mount = Mount(weather(), prefix="w", permission="shop.weather", scopes=["outside"])
    serving = make_server(mounts=[mount])
    assert await PipelineClient(serving, make_principal()).names() == []
    with pytest.raises(InsufficientScope):
        await PipelineClient(serving, make_principal("shop.weather")).call("w__forecast", city="Bern")
    friend = PipelineClient(serving, make_principal("shop.weather", scopes=["outside"]))
    assert await friend.text("w__forecast", city="Bern") == "Bern: rain"


async def test_guards_interceptors_and_exception_handlers_run_with_its_own_name() -> None:
    log: list[str] = []

    def guard(ctx: Context) -> bool:
        log.append(f"guard {ctx.tool_name}")
        return ctx.tool_name != "closed"

    async def interceptor(ctx: Context, proceed: Any) -> Any:
        log.append(f"around {ctx.tool_name}")
        return await proceed()

    class Guarded(Toolset):
        guards = (guard,)
        interceptors = (interceptor,)
        exception_handlers = {KeyError: lambda problem, ctx: f"no {problem.args[0]}"}

        @tool
        async def open(self) -> str:
            raise KeyError("key")

        @tool
        async def closed(self) -> str:
            return "never"

    peer = host(Mount(Guarded, prefix="g"))
    assert await peer.text("g__open") == "no key"
    assert "may not be used" in await peer.error("g__closed")
    assert log == ["guard open", "around open", "guard closed"]


async def test_the_timeout_of_its_server_holds(clock: Clock) -> None:
    server = Server("Slow", options=ServerOptions(timeout=2))

    @server.tool
    async def direct() -> None:
        await asyncio.Event().wait()

    @server.tool
    async def with_context(ctx: Context) -> None:
        await asyncio.Event().wait()

    peer = host(Mount(server, prefix="s"))
    calls = [asyncio.create_task(peer.error(f"s__{name}")) for name in ("direct", "with_context")]
    await clock.advance(2)
    for call in calls:
        assert "longer than 2 seconds" in await call


async def test_the_timeout_of_the_host_holds_if_its_server_has_none(clock: Clock) -> None:
    server = Server("Slow")

    @server.tool
    async def with_context(ctx: Context) -> None:
        await asyncio.Event().wait()

    peer = host(Mount(server, prefix="s"), options={"timeout": 2})
    call = asyncio.create_task(peer.error("s__with_context"))
    await clock.advance(2)
    assert "longer than 2 seconds" in await call


async def test_the_text_of_a_bug_in_a_mount_is_hidden() -> None:
    server = Server("Broken")

    @server.tool
    async def broken() -> None:
        raise RuntimeError("secret")

    @server.tool
    async def refusing() -> None:
        raise ToolError("for the model")

    peer = host(Mount(server, prefix="b"))
    assert "secret" not in await peer.error("b__broken")
    assert await peer.error("b__refusing") == "for the model"


# Middleware and lifespans


async def test_its_middleware_runs_for_its_own_calls_with_its_own_names() -> None:
    seen: list[tuple[str, Any]] = []

    async def audit(call: Any, call_next: Any) -> Any:
        ref = call.params.get("ref", {})
        seen.append((call.method, call.params.get("name") or call.params.get("uri") or ref.get("name")))
        return await call_next(call)

    peer = host(Mount(weather(middleware=[audit]), prefix="w", uri_prefix="w"))

    @peer.server.tool
    async def own() -> str:
        return "own"

    await peer.text("own")
    await peer.names()
    assert seen == []
    await peer.text("w__forecast", city="Bern")
    await peer.request("prompts/get", {"name": "w__report", "arguments": {"city": "Bern"}})
    await peer.request("resources/read", {"uri": "w+city://bern"})
    await completed(peer, {"type": "ref/prompt", "name": "w__report"}, "city", "b")
    assert seen == [
        ("tools/call", "forecast"),
        ("prompts/get", "report"),
        ("resources/read", "city://bern"),
        ("completion/complete", "report"),
    ]


async def test_its_middleware_may_refuse_answer_and_change_arguments() -> None:
    async def middleware(call: Any, call_next: Any) -> Any:
        city = call.params.get("arguments", {}).get("city")
        if city == "Gotham":
            raise InvalidParams("not there")
        if city == "Cached":
            return {"content": [{"type": "text", "text": "cached"}], "isError": False}
        params = {**call.params, "arguments": {"city": city.upper()}}
        return await call_next(dataclasses.replace(call, message=call.message._replace(params=params)))

    peer = host(Mount(weather(middleware=[middleware]), prefix="w"))
    assert await peer.text("w__forecast", city="bern") == "BERN: rain"
    assert await peer.text("w__forecast", city="Cached") == "cached"
    with pytest.raises(InvalidParams, match="not there"):
        await peer.call("w__forecast", city="Gotham")


async def test_middleware_of_servers_in_servers_is_in_their_order() -> None:
    log: list[str] = []

    def layer(name: str) -> Any:
        async def middleware(call: Any, call_next: Any) -> Any:
            log.append(f"{name} {call.params.get('name')}")
            return await call_next(call)

        return middleware

    outer = Server(
        "Outer", mounts=[Mount(weather(middleware=[layer("inner")]), prefix="w")], middleware=[layer("outer")]
    )
    await host(Mount(outer, prefix="o"), middleware=[layer("host")]).text("o__w__forecast", city="Bern")
    assert log == ["host o__w__forecast", "outer w__forecast", "inner forecast"]


def pool(log: list[str], name: str) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        log.append(f"{name} in")
        yield f"pool of {name}"
        log.append(f"{name} out")

    return lifespan


async def test_its_lifespan_is_entered_with_the_hosts_and_left_with_it() -> None:
    log: list[str] = []
    server = weather(lifespan=pool(log, "weather"))

    @server.tool
    async def state(ctx: Context) -> str:
        return str(ctx.lifespan)

    peer = host(Mount(server, prefix="w"), lifespan=pool(log, "host"))
    assert await peer.text("w__state") == "pool of weather"
    assert log == ["host in", "weather in"]
    await peer.server.lifespan.exit()
    assert log == ["host in", "weather in", "weather out", "host out"]


async def test_a_lifespan_that_two_hosts_share_is_left_with_the_last() -> None:
    log: list[str] = []
    server = weather(lifespan=pool(log, "weather"))
    one, two = host(Mount(server, prefix="w")), host(Mount(server, prefix="w"), Mount(server, prefix="v"))
    await one.text("w__forecast", city="Bern")
    await two.text("w__forecast", city="Bern")
    await one.server.lifespan.exit()
    assert log == ["weather in"]
    await two.server.lifespan.exit()
    assert log == ["weather in", "weather out"]


async def test_a_server_that_serves_calls_of_its_own_keeps_its_lifespan() -> None:
    log: list[str] = []
    server = weather(lifespan=pool(log, "weather"))
    one = host(Mount(server, prefix="w"))
    await one.text("w__forecast", city="Bern")
    await server.lifespan.enter()
    await one.server.lifespan.exit()
    assert log == ["weather in"]
    await server.lifespan.exit()
    assert log == ["weather in", "weather out"]


async def test_the_lifespan_of_a_mounted_toolset_is_entered() -> None:
    log: list[str] = []

    class Opening(Toolset):
        @contextlib.asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            log.append("in")
            yield
            log.append("out")

        @tool
        async def look(self) -> str:
            return ",".join(log)

    peer = host(Mount(Opening, prefix="o"))
    assert await peer.text("o__look") == "in"
    await peer.server.lifespan.exit()
    assert log == ["in", "out"]


def test_lifespans_end_with_the_loop() -> None:
    log: list[str] = []
    server = weather(lifespan=pool(log, "weather"))
    peer = host(Mount(server, prefix="w"), lifespan=pool(log, "host"))

    async def once() -> None:
        assert await peer.text("w__forecast", city="Bern") == "Bern: rain"

    for _ in range(2):
        asyncio.run(once())
    assert sorted(log[:4]) == sorted(log[4:]) == ["host in", "host out", "weather in", "weather out"]


def test_an_instance_of_a_toolset_is_served_once() -> None:
    toolset = Weather()
    with pytest.raises(DeclarationError, match="mount its class"):
        make_server(mounts=[Mount(toolset, prefix="a"), Mount(toolset, prefix="b", uri_prefix="b")])
    with pytest.raises(DeclarationError, match="mount its class"):
        make_server(toolsets=[toolset], mounts=[Mount(toolset, prefix="b", uri_prefix="b")])
    twice = Server("twice", toolsets=[toolset])
    make_server(mounts=[Mount(twice, prefix="a"), Mount(twice, prefix="b")])


async def test_background_functions_run_after_the_answer_and_are_refused_then() -> None:
    done: list[str] = []
    kept: list[Context] = []
    server = Server("later")

    @server.tool
    async def leave(ctx: Context) -> str:
        kept.append(ctx)
        ctx.background(done.append, "done")
        return "left"

    assert await host(Mount(server, prefix="l")).text("l__leave") == "left"
    assert done == ["done"]
    with pytest.raises(RuntimeError, match="was answered"):
        kept[0].background(done.append, "late")


async def test_an_api_document_is_mounted_like_a_toolset() -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path)
        return httpx.Response(200, json={"id": 1})

    pets = {"/pets/{id}": {"get": {"operationId": "pet", "responses": {"200": {"description": "It."}}}}}
    pets["/pets/{id}"]["get"]["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {}}]
    document = {"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": pets}
    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    api = OpenAPIToolset(document, base_url="https://api.example.com", prefix="pets", http_client=client)
    peer = host(Mount(api, prefix="api"))
    assert await peer.names() == ["api__pets_pet"]
    await peer.text("api__pets_pet", id="7")
    assert sent == ["/pets/7"]


# Subscriptions


async def test_a_subscription_needs_a_resource_that_the_caller_may_read() -> None:
    server = Server("probed")
    asked: list[str] = []

    @server.resource("note://{name}", check_exists=True)
    async def note(name: str, ctx: Context) -> str | None:
        asked.append(f"{ctx.server.info.name} {name}")
        return "text" if name == "mine" else None

    serving = make_server(mounts=[Mount(server, prefix="n", uri_prefix="n")])
    seen: list[Call] = []

    async def keep(call: Call, call_next: Any) -> Any:
        seen.append(call)
        return await call_next(call)

    serving.middleware = (keep,)
    await PipelineClient(serving).request("resources/templates/list")
    assert await can_read(seen[0], "n+note://mine")
    assert not await can_read(seen[0], "n+note://other")
    assert not await can_read(seen[0], "note://mine")
    assert asked == ["probed mine", "probed other"]


# Providers of mounted servers


class Rows(Provider):
    """A provider with changing entries."""

    def __init__(self, mark: str = "") -> None:
        self.mark = 0
        self.asked: list[str] = []
        server = weather()
        self.kept = tuple(server.registry.tools)
        self.server = server

    @property
    def version(self) -> int:
        return self.mark

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        self.asked.append(ctx.server.info.name)
        return self.kept

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return tuple(self.server.registry.prompts)

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return tuple(self.server.registry.resources)

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return tuple(self.server.registry.templates)

    async def complete(self, target: str, argument: str, value: str, arguments: Any, ctx: Context) -> Any:
        return [f"{target} {argument} {value}"]


async def test_entries_of_its_providers_have_the_prefix() -> None:
    live = Rows()
    peer = host(Mount(Server("Live", providers=[live]), prefix="l", uri_prefix="l"))
    assert await peer.names() == ["l__ask", "l__blocking", "l__forecast", "l__pointing", "l__whoami"]
    assert live.asked == ["Live"]
    assert await peer.text("l__forecast", city="Bern") == "Bern: rain"
    assert (await peer.call("l__whoami"))["structuredContent"]["tool"] == "whoami"
    found = await peer.request("prompts/get", {"name": "l__report", "arguments": {"city": "Bern"}})
    assert found["messages"][0]["content"]["text"] == "report: report on Bern"
    assert await peer.names("resources/list", "resources", "uri") == ["l+weather://now"]
    found = await peer.request("resources/read", {"uri": "l+weather://now"})
    assert found["contents"][0]["uri"] == "l+weather://now"
    ref = {"type": "ref/prompt", "name": "l__report"}
    assert await completed(peer, ref, "city", "b") == ["report city b"]
    ref = {"type": "ref/resource", "uri": "l+city://{name}"}
    assert await completed(peer, ref, "name", "b") == ["city://{name} name b"]


async def test_an_unchanged_list_of_a_provider_is_encoded_once() -> None:
    peer = host(Mount(Server("Live", providers=[Rows()]), prefix="l"))
    await peer.names()
    (before,) = peer.server.listings._provided_pages.values()
    await peer.names()
    (after,) = peer.server.listings._provided_pages.values()
    assert before is after


async def test_the_version_of_a_provider_is_that_of_the_host() -> None:
    live = Rows()
    (provider,) = host(Mount(Server("Live", providers=[live]), prefix="l")).server.providers
    assert provider.has_version
    live.mark = 7
    assert provider.version == 7


async def test_entries_with_an_invalid_name_are_skipped_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    live = Rows()
    peer = host(Mount(Server("Live", providers=[live]), prefix="p" * 122))
    assert await peer.names() == ["p" * 122 + "__ask"]
    live.kept = (*live.kept, *live.kept[:1])
    await peer.names()
    assert sum("blocking" in record.getMessage() for record in caplog.records) == 1


# Handlers that call their own server


async def test_a_sample_uses_the_tools_of_its_own_server_by_their_own_names() -> None:
    server = weather()

    @server.tool
    async def plan(ctx: Context) -> str:
        found = await ctx.sample("Plan", tools=["forecast"], max_iterations=1)
        return found.text or ""

    asked: list[dict[str, Any]] = []

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        if len(asked) == 1:
            use = {"type": "tool_use", "id": "1", "name": "forecast", "input": {"city": "Bern"}}
            return {"role": "assistant", "model": "m", "stopReason": "toolUse", "content": [use]}
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "done"}}

    serving = make_server(mounts=[Mount(server, prefix="w")])
    peer = PipelineClient(serving, capabilities={"sampling": {"tools": {}}}, answer=answer)
    assert await peer.text("w__plan") == "done"
    assert asked[0]["tools"][0]["name"] == "forecast"
    assert "Bern: rain" in str(asked[1]["messages"])


async def test_capabilities_are_those_of_everything_together() -> None:
    assert make_server().offered_capabilities == {"logging"}
    assert make_server(mounts=[Mount(weather(), prefix="w")]).offered_capabilities == {
        "logging",
        "tools",
        "prompts",
        "resources",
        "completions",
    }


def test_a_server_is_not_mounted_in_itself() -> None:
    class Own:
        def create_part(self, host: Server) -> Any:
            return Mount(host, prefix="w").create_part(host)

    with pytest.raises(DeclarationError, match="in itself"):
        Server("Round", mounts=[Own()])
