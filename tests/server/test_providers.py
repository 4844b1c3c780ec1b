"""Providers and hand-written handlers: merged with registered primitives, under the same rules."""

import re
from collections.abc import Iterable
from typing import Any

import pytest

from mcp_django import Context, ToolError, ToolResult
from mcp_django.lowlevel import Handlers
from mcp_django.protocol.errors import InsufficientScope, InvalidParams, MethodNotFound, ResourceNotFound
from mcp_django.providers import Provider
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives.base import Prompt, Resource, Tool
from mcp_django.server.primitives.decorators import build_prompt, build_resource, build_tool
from mcp_django.types import Completion
from tests.server.client import HANDSHAKE, PipelineClient, accept, make_principal, make_server

OBJECT: dict[str, Any] = {"type": "object"}


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"{name}!", "inputSchema": OBJECT, **more}


def tools(*names: str, call: Any = None) -> Handlers:
    """A provider of tools that return their own name."""

    async def call_tool(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        return f"{name} provided"

    return Handlers(list_tools=lambda ctx: [entry(name) for name in names], call_tool=call or call_tool)


def make_mixed_client(*providers: Provider) -> PipelineClient:
    """A peer of a server with the provider, and with a tool `m` of its own."""
    server = make_server(providers=providers)

    @server.tool
    def m() -> str:
        return "m registered"

    return PipelineClient(server)


async def test_provided_entries_are_merged_and_sorted_with_registered_ones() -> None:
    assert await make_mixed_client(tools("z", "a"), tools("n")).names() == ["a", "m", "n", "z"]


async def test_registered_tools_win_in_lists_and_calls() -> None:
    peer = make_mixed_client(tools("m", "n"))
    assert await peer.names() == ["m", "n"]
    assert await peer.text("m") == "m registered"
    assert await peer.text("n") == "n provided"


async def test_the_first_of_two_providers_wins() -> None:
    async def other(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return "second"

    peer = make_mixed_client(tools("a"), tools("a", call=other))
    assert await peer.names() == ["a", "m"]
    assert await peer.text("a") == "a provided"


async def test_pages_hold_registered_and_provided_entries() -> None:
    peer = make_mixed_client(tools("z", "a", "n"))
    peer.server.set_options(page_size=2)
    first = await peer.request("tools/list")
    second = await peer.request("tools/list", {"cursor": first["nextCursor"]})
    assert [tool["name"] for tool in (*first["tools"], *second["tools"])] == ["a", "m", "n", "z"]
    assert "nextCursor" not in second


async def test_a_provided_list_is_read_each_time_and_private() -> None:
    names = ["a"]
    provider = Handlers(list_tools=lambda ctx: [entry(name) for name in names], call_tool=lambda *_: "x")
    peer = make_mixed_client(provider)
    assert (await peer.request("tools/list"))["cacheScope"] == "private"
    names.append("b")
    assert await peer.names() == ["a", "b", "m"]


async def test_a_tool_is_unknown_after_every_provider_was_asked() -> None:
    with pytest.raises(InvalidParams, match="Unknown tool: nobody"):
        await make_mixed_client(tools("a"), tools("b")).call("nobody")


@pytest.mark.parametrize("is_plain", [True, False])
async def test_functions_may_be_plain_or_async(is_plain: bool) -> None:
    def plain_list(ctx: Context) -> list[dict[str, Any]]:
        return [entry("a")]

    def plain_call(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return f"{name} {arguments} {ctx.tool_name}"

    async def async_list(ctx: Context) -> list[dict[str, Any]]:
        return plain_list(ctx)

    async def async_call(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return plain_call(name, arguments, ctx)

    given = (plain_list, plain_call) if is_plain else (async_list, async_call)
    peer = make_mixed_client(Handlers(list_tools=given[0], call_tool=given[1]))
    assert await peer.text("a", x=1) == "a {'x': 1} a"


async def test_arguments_are_checked_against_the_entry_s_schema_before_the_call() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    called: list[Any] = []
    peer = make_mixed_client(
        Handlers(
            list_tools=lambda ctx: [entry("a", inputSchema=schema)],
            call_tool=lambda name, arguments, ctx: called.append(arguments),
        )
    )
    assert "n" in await peer.error("a", n="one")
    await peer.call("a", n=1)
    assert called == [{"n": 1}]


async def test_an_entry_is_listed_with_all_its_members() -> None:
    listed_entry = entry(
        "a",
        title="A",
        annotations={"readOnlyHint": True, "destructiveHint": False},
        outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}},
        _meta={"example.com/x": 1},
    )
    peer = make_mixed_client(Handlers(list_tools=lambda ctx: [listed_entry], call_tool=lambda *_: {"n": 1}))
    listed = next(tool for tool in (await peer.request("tools/list"))["tools"] if tool["name"] == "a")
    assert listed == {**listed_entry, "inputSchema": {"type": "object", "properties": {}}}
    assert (await peer.call("a"))["structuredContent"] == {"n": 1}


async def test_results_and_errors_are_those_of_any_tool() -> None:
    def call(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        if name == "full":
            return ToolResult("x", meta={"example.com/a": 1})
        raise ToolError("no") if name == "sorry" else RuntimeError("secret")

    peer = make_mixed_client(tools("full", "sorry", "bug", call=call))
    assert (await peer.call("full"))["_meta"]["example.com/a"] == 1
    assert await peer.error("sorry") == "no"
    assert "secret" not in await peer.error("bug")


async def test_a_provided_tool_may_ask() -> None:
    async def call(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return f"{(await ctx.elicit('Who?', str)).data}"

    for version in (HANDSHAKE, "2026-07-28"):
        peer = PipelineClient(make_server(providers=[tools("a", call=call)]), version=version)
        peer.answer = lambda *_: accept(value="Al")
        assert await peer.text("a") == "Al"


async def test_an_invalid_entry_is_omitted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for bad in [
        {"description": "no name", "inputSchema": OBJECT},
        {"name": "no schema"},
        entry("not a name"),
        entry("a", inputSchema=7),
    ]:
        caplog.clear()
        peer = make_mixed_client(
            Handlers(list_tools=lambda ctx, bad=bad: [entry("good"), bad], call_tool=lambda *_: None)
        )
        for _ in range(2):
            assert await peer.names() == ["good", "m"], bad
        [record] = caplog.records
        assert record.levelname == "ERROR", bad
        assert record.getMessage().startswith("Declaration not served: "), bad


async def test_a_failing_provider_does_not_hide_primitives_of_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> list[dict[str, Any]]:
        raise RuntimeError("secret")

    handlers = dict.fromkeys(("list_tools", "call_tool", "list_prompts", "get_prompt", "read_resource"), broken)
    other = Handlers(
        list_tools=lambda: [entry("n")],
        call_tool=lambda *_: "n provided",
        list_prompts=lambda: [{"name": "p"}],
        get_prompt=lambda *_: "p provided",
        read_resource=lambda uri: f"{uri} provided" if uri == "test://there" else None,
    )
    peer = make_mixed_client(Handlers(**handlers, list_resources=broken), other)
    for _ in range(2):
        assert await peer.names() == ["m", "n"]
        assert [one["name"] for one in (await peer.request("prompts/list"))["prompts"]] == ["p"]
        assert (await peer.request("resources/list"))["resources"] == []
        assert (await peer.text("m"), await peer.text("n")) == ("m registered", "n provided")
        assert "p provided" in str(await peer.request("prompts/get", {"name": "p"}))
        assert "there provided" in str(await peer.request("resources/read", {"uri": "test://there"}))
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "secret" in caplog.text


async def test_a_name_that_a_failed_provider_may_have_is_an_internal_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(ctx: Context) -> list[dict[str, Any]]:
        raise RuntimeError("secret")

    peer = make_mixed_client(Handlers(list_tools=broken, call_tool=lambda *_: None))
    assert re.fullmatch(r"Internal error \(reference [0-9a-f]+\)", await peer.error("somewhere"))
    assert len(caplog.records) == 1
    assert "secret" in caplog.text


def test_a_list_function_without_its_counterpart_is_refused(subtests: pytest.Subtests) -> None:
    for half in ["list_tools", "call_tool", "list_prompts", "get_prompt"]:
        with subtests.test(half=half), pytest.raises(ValueError, match="both a list function"):
            Handlers(**{half: lambda *_: None})  # type: ignore[arg-type]


def test_resources_without_a_function_that_reads_are_refused(subtests: pytest.Subtests) -> None:
    for half in ["list_resources", "list_templates"]:
        with subtests.test(half=half), pytest.raises(ValueError, match="read_resource"):
            Handlers(**{half: lambda *_: []})  # type: ignore[arg-type]


async def test_handlers_offer_the_kinds_of_their_functions() -> None:
    assert Handlers().offers == frozenset()
    assert tools("a").offers == {"tools"}
    assert Handlers(read_resource=lambda *_: None).offers == {"resources"}
    assert Handlers(complete=lambda *_: None).offers == {"completions"}
    with pytest.raises(MethodNotFound, match="does not offer tools"):
        await PipelineClient(make_server(providers=[Handlers(complete=lambda *_: None)])).request("tools/list")


def library() -> Handlers:
    books = {"book://1": "one", "book://2": "two"}

    def listed(ctx: Context) -> list[dict[str, Any]]:
        return [{"uri": uri, "name": uri, "mimeType": "text/plain", "size": 3} for uri in list(books)[:1]]

    return Handlers(
        list_resources=listed,
        list_templates=lambda ctx: [{"uriTemplate": "book://{n}", "name": "book", "mimeType": "text/plain"}],
        read_resource=lambda uri, ctx: books.get(uri),
    )


async def test_listed_and_unlisted_resources_are_read() -> None:
    peer = PipelineClient(make_server(providers=[library()]))
    assert await peer.names("resources/list", "resources", "uri") == ["book://1"]
    assert await peer.names("resources/templates/list", "resourceTemplates", "uriTemplate") == ["book://{n}"]
    for uri, text in {"book://1": "one", "book://2": "two"}.items():
        (contents,) = (await peer.request("resources/read", {"uri": uri}))["contents"]
        assert (contents["uri"], contents["text"], contents["mimeType"]) == (uri, text, "text/plain")


async def test_a_resource_that_the_handler_does_not_know_is_not_found() -> None:
    with pytest.raises(ResourceNotFound):
        await PipelineClient(make_server(providers=[library()])).request("resources/read", {"uri": "book://3"})


async def test_registered_resources_and_templates_are_read_first() -> None:
    server = make_server(providers=[library()])
    server.resource("book://1")(lambda: "mine")
    server.resource("book://x/{n}")(lambda n: f"my {n}")
    peer = PipelineClient(server)
    for uri, text in {"book://1": "mine", "book://x/1": "my 1", "book://2": "two"}.items():
        assert (await peer.request("resources/read", {"uri": uri}))["contents"][0]["text"] == text


def phrases() -> Handlers:
    arguments = [{"name": "who", "required": True}, {"name": "how"}]
    return Handlers(
        list_prompts=lambda ctx: [{"name": "greet", "title": "Greet", "arguments": arguments}],
        get_prompt=lambda name, arguments, ctx: f"{name} {arguments}",
    )


async def test_prompts_are_listed_and_got_with_their_arguments_checked() -> None:
    peer = PipelineClient(make_server(providers=[phrases()]))
    (listed,) = (await peer.request("prompts/list"))["prompts"]
    assert (listed["title"], [argument["name"] for argument in listed["arguments"]]) == ("Greet", ["who", "how"])
    got = await peer.request("prompts/get", {"name": "greet", "arguments": {"who": "Al"}})
    assert got["messages"][0]["content"]["text"] == "greet {'who': 'Al'}"
    with pytest.raises(InvalidParams, match="missing argument 'who'"):
        await peer.request("prompts/get", {"name": "greet"})
    with pytest.raises(InvalidParams, match="unknown argument 'x'"):
        await peer.request("prompts/get", {"name": "greet", "arguments": {"who": "Al", "x": "y"}})
    with pytest.raises(InvalidParams, match="Unknown prompt: leave"):
        await peer.request("prompts/get", {"name": "leave"})


def make_completion_params(target: str, argument: str = "x", kind: str = "prompt") -> dict[str, Any]:
    ref = {"type": "ref/prompt", "name": target} if kind == "prompt" else {"type": "ref/resource", "uri": target}
    return {"ref": ref, "argument": {"name": argument, "value": "v"}, "context": {"arguments": {"a": "b"}}}


async def values(peer: PipelineClient, asked: dict[str, Any]) -> list[str]:
    completion = (await peer.request("completion/complete", asked))["completion"]
    return list(completion["values"])


async def test_a_catch_all_completer_is_the_last_one() -> None:
    def complete(target: str, argument: str, value: str, arguments: dict[str, str], ctx: Context) -> Completion | None:
        if target == "nobody":
            return None
        return Completion([f"{target} {argument} {value} {arguments}"], total=7, has_more=True)

    server = make_server(providers=[phrases(), library(), Handlers(complete=complete)])

    @server.prompt
    def mine(x: str, y: str) -> str:
        return x

    server.completion("mine", "x")(lambda value: [f"{value} registered"])
    peer = PipelineClient(server)
    assert await values(peer, make_completion_params("mine")) == ["v registered"]
    assert await values(peer, make_completion_params("mine", "y")) == ["mine y v {'a': 'b'}"]
    assert await values(peer, make_completion_params("greet", "who")) == ["greet who v {'a': 'b'}"]
    assert await values(peer, make_completion_params("book://{n}", "n", "resource")) == ["book://{n} n v {'a': 'b'}"]
    full = (await peer.request("completion/complete", make_completion_params("other")))["completion"]
    assert (full["total"], full["hasMore"]) == (7, True)
    with pytest.raises(InvalidParams, match="Unknown prompt: nobody"):
        await values(peer, make_completion_params("nobody"))
    with pytest.raises(InvalidParams, match="Unknown resource template: nobody"):
        await values(peer, make_completion_params("nobody", kind="resource"))


async def test_a_registered_completer_may_complete_a_provided_template() -> None:
    server = make_server(providers=[library()])
    server.completion("book://{n}", "n")(lambda value: [f"{value}1"])
    assert await values(PipelineClient(server), make_completion_params("book://{n}", "n", "resource")) == ["v1"]


async def test_a_template_is_found_by_a_matching_uri() -> None:
    server = make_server()
    server.resource("test://{n}")(lambda n: n)
    server.completion("test://{n}", "n")(lambda value: [f"{value}1"])
    for uri in ("test://{n}", "test://7"):
        assert await values(PipelineClient(server), make_completion_params(uri, "n", "resource")) == ["v1"]


class Catalogue(Provider):
    """Objects with permissions, of a version that changes."""

    offers = frozenset({"tools", "resources", "prompts"})

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        self.asked.append(f"for {ctx.principal.key}")
        return [
            build_tool(lambda: "open", "open_tool", description="x"),
            build_tool(lambda: "guarded", "guarded_tool", description="x", permission="a.b", scopes=["s"]),
        ]

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        built = build_resource(lambda: "guarded", "shelf://guarded", permission="a.b")
        assert isinstance(built, Resource)
        return [built]

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return [build_prompt(lambda: "guarded", "guarded_prompt", permission="a.b")]

    @property
    def version(self) -> int:
        return len(self.asked)


async def test_permissions_of_provided_primitives_apply_to_lists_and_calls() -> None:
    server = make_server(providers=[Catalogue()])
    stranger, friend = (
        PipelineClient(server, make_principal()),
        PipelineClient(server, make_principal("a.b", scopes=["s"], name="friend")),
    )
    assert await stranger.names() == ["open_tool"]
    assert await stranger.names("resources/list", "resources", "uri") == []
    assert await stranger.names("prompts/list", "prompts") == []
    for method, params in (
        ("tools/call", {"name": "guarded_tool"}),
        ("resources/read", {"uri": "shelf://guarded"}),
        ("prompts/get", {"name": "guarded_prompt"}),
    ):
        with pytest.raises(InvalidParams, match=r"Unknown|not found"):
            await stranger.request(method, params)
        assert await friend.request(method, params)
    assert await friend.names() == ["guarded_tool", "open_tool"]
    with pytest.raises(InsufficientScope):
        await PipelineClient(server, make_principal("a.b")).call("guarded_tool")


async def test_a_provider_is_called_only_for_the_kinds_it_offers() -> None:
    class Nothing(Catalogue):
        offers = frozenset({"prompts"})

    provider = Nothing()
    server = make_server(providers=[provider])
    server.tool(lambda: "x", name="own")
    assert await PipelineClient(server).names() == ["own"]
    assert provider.asked == []


async def test_a_provider_offers_nothing_by_default() -> None:
    peer = PipelineClient(make_server(providers=[Provider()]))
    for method, field in (("tools/list", "tools"), ("resources/list", "resources"), ("prompts/list", "prompts")):
        assert (await peer.request(method))[field] == []
    assert (await peer.request("resources/templates/list"))["resourceTemplates"] == []
    for method, params in (
        ("tools/call", {"name": "x"}),
        ("resources/read", {"uri": "x://x"}),
        ("prompts/get", {"name": "x"}),
        ("completion/complete", make_completion_params("x")),
    ):
        with pytest.raises(InvalidParams):
            await peer.request(method, params)


async def test_handlers_may_omit_the_context() -> None:
    async def list_tools() -> list[dict[str, Any]]:
        return [entry("echo")]

    def call_tool(name: str, arguments: dict[str, Any]) -> str:
        return f"{name} called"

    def read_resource(uri: str) -> str:
        return f"read {uri}"

    def get_prompt(name: str, arguments: dict[str, str], retries: int = 3) -> str:
        return f"{name} {retries}"

    provider = Handlers(
        list_tools=list_tools,
        call_tool=call_tool,
        read_resource=read_resource,
        list_prompts=lambda: [{"name": "greet"}],
        get_prompt=get_prompt,
        complete=lambda target, argument, value, arguments: ["a"],
    )
    peer = make_mixed_client(provider)
    assert "echo" in await peer.names()
    assert (await peer.request("tools/call", {"name": "echo", "arguments": {}}))["content"][0]["text"] == "echo called"
    assert (await peer.request("resources/read", {"uri": "x://1"}))["contents"][0]["text"] == "read x://1"
    got = await peer.request("prompts/get", {"name": "greet"})
    assert got["messages"][0]["content"]["text"] == "greet 3"
    assert await values(peer, make_completion_params("greet")) == ["a"]


def test_handlers_of_another_signature_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"must take \(name, arguments, ctx\), or the same without ctx"):
        Handlers(list_tools=list, call_tool=lambda name: "x")
