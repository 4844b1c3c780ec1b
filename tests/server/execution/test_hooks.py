"""Hooks around all primitives of a toolset, and invalid hooks."""

from collections.abc import Callable
from typing import Any

import pytest

from mcp_django import Context, ToolError, ToolResult, Toolset, completion, prompt, resource, tool
from mcp_django.protocol.errors import InternalError
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.decorators import build_prompt, build_tool
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, make_server


class Guarded(Toolset):
    metadata = {"open": False}

    def closed(ctx: Context) -> bool:  # noqa: N805 - a guard is not a method
        return bool(ctx.metadata["open"])

    async def framed(ctx: Context, proceed: Any) -> Any:  # noqa: N805
        return f"<{await proceed()}>"

    guards = [closed]
    interceptors = [framed]
    exception_handlers = {KeyError: lambda problem, ctx: "handled"}

    @resource("guarded://a")
    def a(self) -> str:
        return "a"

    @resource("guarded://{x}/b", metadata={"open": True})
    def b(self, x: str) -> str:
        return {"x": "b"}[x]

    @prompt(metadata={"open": True})
    def greet(self, what: str) -> str:
        return what

    @prompt
    def hush(self, what: str) -> str:
        return what

    @completion("greet", "what")
    def what(self, value: str) -> list[str]:
        return [value]

    @completion("hush", "what")
    def secret(self, value: str) -> list[str]:
        raise AssertionError("its guard refuses all callers")


def ask(name: str) -> dict[str, Any]:
    return {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "what", "value": "v"}}


async def test_hooks_apply_to_resources_and_prompts() -> None:
    peer = PipelineClient(make_server(toolsets=[Guarded()]))

    async def read(uri: str) -> str:
        return str((await peer.request("resources/read", {"uri": uri}))["contents"][0]["text"])

    with pytest.raises(InternalError, match="may not be used here"):
        await read("guarded://a")
    assert await read("guarded://x/b") == "<b>"
    assert await read("guarded://y/b") == "handled"
    said = await peer.request("prompts/get", {"name": "greet", "arguments": {"what": "hi"}})
    assert said["messages"][0]["content"]["text"] == "<hi>"
    with pytest.raises(InternalError, match="may not be used here"):
        await peer.request("prompts/get", {"name": "hush", "arguments": {"what": "hi"}})


async def test_the_guards_of_a_prompt_apply_to_its_completions() -> None:
    peer = PipelineClient(make_server(toolsets=[Guarded()]))
    assert (await peer.request("completion/complete", ask("greet")))["completion"]["values"] == ["v"]
    with pytest.raises(InternalError, match="may not be used here"):
        await peer.request("completion/complete", ask("hush"))


async def test_a_guard_sees_the_arguments_and_cannot_change_them() -> None:
    server = make_server()

    def few(ctx: Context) -> bool:
        given = ctx.arguments
        given["items"].append("guard")  # type: ignore[attr-defined]
        return len(given["items"]) < 3

    @server.tool(guards=[few])
    def buy(items: list[str]) -> str:
        return ",".join(items)

    peer = PipelineClient(server)
    assert await peer.text("buy", items=["a"]) == "a"
    assert "may not be used" in await peer.error("buy", items=["a", "b"])


class Guard:
    """Made of a context, and so never False."""

    def __init__(self, ctx: Context) -> None: ...


def test_an_invalid_hook_is_refused_at_its_declaration(subtests: pytest.Subtests) -> None:
    cases = [
        {"guards": [Guard]},
        {"interceptors": ["shop.hooks.audit"]},
        {"exception_handlers": {"KeyError": print}},
        {"exception_handlers": {KeyError: "handled"}},
        {"exception_handlers": {BaseException: print}},
    ]
    for hooks in cases:
        with subtests.test(hooks=hooks):

            def hello() -> str:
                return "hello"

            builds: list[Callable[..., Any]] = [build_tool, build_prompt]
            for build in builds:
                with pytest.raises(DeclarationError):
                    build(hello, **hooks)

            class Kitchen(Toolset):
                cook = tool(lambda self: "x", name="cook")

            with pytest.raises(DeclarationError):
                make_server(toolsets=[type("Mine", (Kitchen,), hooks)()])


async def test_an_interceptor_that_runs_the_handler_twice_gets_fresh_values() -> None:
    server, seen = make_server(), []

    async def twice(ctx: Context, proceed: Any) -> Any:
        return [await proceed(), await proceed()]

    @server.tool(interceptors=[twice])
    def it(n: int, ctx: Context) -> int:
        seen.append(ctx)
        return n

    assert "structuredContent" not in await PipelineClient(server).call("it", n=1) or len(seen) == 2
    assert len(seen) == 2


async def test_the_hooks_of_the_documentation_work(monkeypatch: pytest.MonkeyPatch) -> None:
    block = next(b for b in python_blocks(ROOT / "docs" / "expose" / "toolsets.md") if "class Kitchen" in b)
    monkeypatch.setattr(registry, "REGISTRIES", {})
    module, found = served_by(block, monkeypatch)
    peer = PipelineClient(make_server(registry=found), log_level="debug")
    assert await peer.text("serve", dish="soup") == "2"
    assert peer.received[-1]["params"]["data"] == "serve is done"
    assert await peer.error("serve", dish="fish") == "There is no 'fish' left."
    assert await peer.error("ring") == "The porter does not come."
    night = PipelineClient(make_server(registry=found), headers={"X-Shift": "night"})
    assert "may not be used" in await night.error("serve", dish="soup")
    assert await night.error("ring") == "The porter does not come."
    assert isinstance(module.sold_out(KeyError("x"), None), ToolResult)
    assert issubclass(module.ToolError, ToolError)
