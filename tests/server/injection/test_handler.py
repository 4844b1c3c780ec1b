"""Injection into handlers, the thread of their code, and the names of sources."""

import functools
import threading
from typing import Annotated, Any

import pytest

from mcp_django import Context, Depends, Principal, ToolError, Toolset, tool
from mcp_django.server import ports
from mcp_django.server.injection.handler import describe_source
from mcp_django.server.injection.parameters import get_injection
from mcp_django.server.ports import ContextView
from tests.server.client import HANDSHAKE, PipelineClient, make_principal, make_server


class Shop:
    """Something a dependency provides, without a schema."""

    def __init__(self, name: str) -> None:
        self.name = name


async def current_shop(ctx: Context) -> Shop:
    return Shop(str(ctx.url_kwargs.get("shop", "none")))


def plain_shop() -> Shop:
    return Shop("plain")


def test_injected_parameters_are_known_by_their_annotation(subtests: pytest.Subtests) -> None:
    cases = [
        (Context, ContextView),
        (Context | None, ContextView),
        (Annotated[Context, "x"], ContextView),
        (Principal, ports.Principal),
        (Principal | None, ports.Principal),
        (Annotated[Shop, Depends(plain_shop)], Depends(plain_shop)),
        (Annotated[Shop, "x", Depends(plain_shop)] | None, Depends(plain_shop)),
        (int, None),
        (Any, None),
        (Annotated[int, "x"], None),
        (dict[str, int], None),
    ]
    for annotation, expected in cases:
        with subtests.test(annotation=annotation, expected=expected):
            assert get_injection(annotation) == expected


async def test_injected_parameters_are_not_arguments() -> None:
    server = make_server()

    @server.tool
    def buy(
        what: str, shop: Annotated[Shop, Depends(current_shop)], who: Principal, c: Context | None = None
    ) -> list[str]:
        assert c is not None
        return [what, shop.name, who.key, c.tool_name or ""]

    peer = PipelineClient(server, make_principal(name="al"), kwargs={"shop": "bakery"})
    (listed,) = (await peer.request("tools/list"))["tools"]
    assert set(listed["inputSchema"]["properties"]) == {"what"}
    result = await peer.call("buy", what="bread")
    assert result["structuredContent"] == {"result": ["bread", "bakery", "tests|al|", "buy"]}
    assert "shop" in await peer.error("buy", what="bread", shop="mine")


async def test_resources_prompts_and_completions_have_injection() -> None:
    server = make_server()

    @server.resource("test://{x}")
    async def read(x: str, shop: Annotated[Shop, Depends(plain_shop)], who: Principal) -> str:
        return f"{x} {shop.name} {who.key}"

    @server.prompt
    def greet_guest(x: str, shop: Annotated[Shop, Depends(plain_shop)], ctx: Context) -> str:
        return f"{x} {shop.name} {ctx.name}"

    @server.completion("greet_guest", "x")
    def what(value: str, arguments: dict[str, str], ctx: Context, who: Principal) -> list[str]:
        return [value, arguments["y"], str(ctx.name), who.key]

    peer = PipelineClient(server)
    read_ = await peer.request("resources/read", {"uri": "test://a"})
    assert read_["contents"][0]["text"] == "a plain local"
    said = await peer.request("prompts/get", {"name": "greet_guest", "arguments": {"x": "a"}})
    assert said["messages"][0]["content"]["text"] == "a plain greet_guest"
    asked = {
        "ref": {"type": "ref/prompt", "name": "greet_guest"},
        "argument": {"name": "x", "value": "v"},
        "context": {"arguments": {"y": "b"}},
    }
    assert (await peer.request("completion/complete", asked))["completion"]["values"] == [
        "v",
        "b",
        "greet_guest",
        "local",
    ]


async def test_a_dependency_is_provided_for_each_call() -> None:
    server, made = make_server(), []

    def provide() -> int:
        made.append(1)
        return len(made)

    @server.tool
    def count(n: Annotated[int, Depends(provide)]) -> int:
        return n

    peer = PipelineClient(server)
    assert [await peer.text("count"), await peer.text("count")] == ["1", "2"]


async def test_an_exception_of_a_dependency_is_handled_as_one_of_the_tool() -> None:
    server = make_server()

    def closed() -> None:
        raise ToolError("The shop is closed")

    def broken() -> None:
        raise RuntimeError("secret")

    @server.tool
    def one(shop: Annotated[Any, Depends(closed)]) -> None: ...

    @server.tool
    def two(shop: Annotated[Any, Depends(broken)]) -> None: ...

    peer = PipelineClient(server)
    assert await peer.error("one") == "The shop is closed"
    assert "secret" not in await peer.error("two")


async def test_a_dependency_runs_inside_guards_interceptors_and_exception_handlers() -> None:
    server, log = make_server(), []

    def provide() -> str:
        log.append("provide")
        raise KeyError("bread")

    async def around(ctx: Context, proceed: Any) -> Any:
        log.append("interceptor")
        return await proceed()

    @server.tool(interceptors=[around], exception_handlers={KeyError: lambda problem, ctx: "sold out"})
    def buy(bread: Annotated[str, Depends(provide)]) -> str:
        return bread

    assert await PipelineClient(server).text("buy") == "sold out"
    assert log == ["interceptor", "provide"]


async def test_a_dependency_may_ask() -> None:
    async def name(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", str)
        return answer.data or "nobody"

    server = make_server()

    @server.tool
    async def greet(who: Annotated[str, Depends(name)]) -> str:
        return f"hello {who}"

    for version in (HANDSHAKE, "2026-07-28"):
        peer = PipelineClient(
            server, version=version, answer=lambda *_: {"action": "accept", "content": {"value": "Al"}}
        )
        assert await peer.text("greet") == "hello Al"


async def test_methods_are_injected_like_functions() -> None:
    class Shops(Toolset):
        @tool
        def buy(self, ctx: Context, shop: Annotated[Shop, Depends(plain_shop)], who: Principal) -> str:
            return f"{ctx.tool_name} {shop.name} {who.key}"

    assert await PipelineClient(make_server(toolsets=[Shops()])).text("buy") == "buy plain local"


async def test_a_plain_function_runs_on_a_thread_and_an_async_one_on_the_loop() -> None:
    server = make_server()

    @server.tool
    def plain() -> int:
        return threading.get_ident()

    @server.tool
    async def on_loop() -> int:
        return threading.get_ident()

    @server.tool
    def gives_a_coroutine() -> int:
        async def later() -> int:
            return threading.get_ident()

        return later()  # type: ignore[return-value]

    peer, here = PipelineClient(server), threading.get_ident()
    assert int(await peer.text("on_loop")) == here
    assert int(await peer.text("plain")) != here
    assert int(await peer.text("gives_a_coroutine")) == here


def test_a_source_names_module_function_and_line() -> None:
    assert describe_source(plain_shop).startswith(f"{__name__}.plain_shop (line ")
    assert describe_source(functools.partial(plain_shop)) == describe_source(plain_shop)

    @functools.wraps(plain_shop)
    def wrapper() -> None: ...

    assert describe_source(wrapper) == describe_source(plain_shop)
    assert "Shop" in describe_source(Shop("x"))
