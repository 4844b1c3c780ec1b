"""Dependencies of dependencies, and those that clean up."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from mcp_django import Context, Depends, Header, Principal, ToolError
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives.decorators import build_tool
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_server
from tests.support.clock import Clock


async def test_a_dependency_runs_once_per_call() -> None:
    server, asked = make_server(), []

    def base(ctx: Context, who: Principal) -> str:
        asked.append("base")
        return f"{ctx.tool_name} {who.key}"

    async def left(base: Annotated[str, Depends(base)]) -> str:
        return f"left {base}"

    def right(base: Annotated[str, Depends(base)], suffix: str = "!") -> str:
        return f"right {base}{suffix}"

    @server.tool
    def both(
        left: Annotated[str, Depends(left)], right: Annotated[str, Depends(right)], base: Annotated[str, Depends(base)]
    ) -> list[str]:
        return [left, right, base]

    peer = PipelineClient(server)
    result = await peer.call("both")
    assert result["structuredContent"]["result"] == ["left both local", "right both local!", "both local"]
    assert asked == ["base"]
    await peer.call("both")
    assert asked == ["base", "base"]


async def test_a_dependency_without_cache_runs_for_each_parameter() -> None:
    server, numbers = make_server(), iter(range(9))

    def number() -> int:
        return next(numbers)

    @server.tool
    def three(
        a: Annotated[int, Depends(number)],
        b: Annotated[int, Depends(number)],
        c: Annotated[int, Depends(number, cache=False)],
    ) -> list[int]:
        return [a, b, c]

    assert (await PipelineClient(server).call("three"))["structuredContent"] == {"result": [0, 0, 1]}


class Log(list[str]):
    def opened(self) -> "dict[str, Any]":
        log = self

        async def agen() -> AsyncIterator[str]:
            log.append("open agen")
            try:
                yield "agen"
            finally:
                log.append("close agen")

        def gen() -> Iterator[str]:
            log.append(f"open gen {threading.current_thread() is threading.main_thread()}")
            try:
                yield "gen"
            finally:
                log.append("close gen")

        @contextlib.contextmanager
        def manager() -> Iterator[str]:
            log.append("open manager")
            yield "manager"
            log.append("close manager")

        @contextlib.asynccontextmanager
        async def amanager(agen: Annotated[str, Depends(agen)]) -> AsyncIterator[str]:
            log.append(f"open amanager after {agen}")
            try:
                yield "amanager"
            except KeyError:
                log.append("seen KeyError")
                raise
            finally:
                log.append("close amanager")

        return {"agen": agen, "gen": gen, "manager": manager, "amanager": amanager}


async def test_code_after_the_yield_runs_after_the_handler() -> None:
    log = Log()

    async def it(value: Any) -> str:
        log.append("handler")
        return str(value)

    for kind in ("agen", "gen", "manager", "amanager"):
        log.clear()
        server = make_server()
        it.__annotations__["value"] = Annotated[str, Depends(log.opened()[kind])]
        server.tool(it)
        assert await PipelineClient(server).text("it") == kind
        assert log[-2 if kind != "amanager" else -3] == "handler", kind
        assert log[-1] == ("close agen" if kind == "amanager" else f"close {kind}")


async def test_dependencies_are_closed_in_reverse_order_with_the_exception() -> None:
    server, log = make_server(), Log()

    async def it(value: Any) -> None:
        raise KeyError("x")

    it.__annotations__["value"] = Annotated[str, Depends(log.opened()["amanager"])]
    server.tool(it, exception_handlers={KeyError: lambda problem, ctx: log.append("handled")})
    await PipelineClient(server).call("it")
    assert log[-4:] == ["seen KeyError", "close amanager", "close agen", "handled"]


async def test_a_dependency_that_suppresses_the_exception_is_a_bug() -> None:
    server = make_server()

    async def greedy() -> AsyncIterator[None]:
        with contextlib.suppress(ToolError):
            yield

    @server.tool
    async def it(x: Annotated[None, Depends(greedy)]) -> str:
        raise ToolError("no")

    assert "Internal error" in await PipelineClient(server).error("it")


async def test_a_dependency_is_closed_after_a_timeout(clock: Clock) -> None:
    server, log = make_server(), Log()

    async def it(value: Any) -> None:
        await asyncio.Event().wait()

    it.__annotations__["value"] = Annotated[str, Depends(log.opened()["amanager"])]
    server.tool(it, timeout=2)
    call = asyncio.ensure_future(PipelineClient(server).error("it"))
    await clock.advance(2)
    assert "longer than" in await call
    assert log[-2:] == ["close amanager", "close agen"]


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_dependency_is_closed_in_each_round(version: str) -> None:
    server, log = make_server(), Log()

    async def it(value: Any, ctx: Context) -> str:
        return str((await ctx.elicit("Sure?")).data)

    it.__annotations__["value"] = Annotated[str, Depends(log.opened()["agen"])]
    server.tool(it)
    peer = PipelineClient(server, version=version, answer=lambda method, params: accept(value=True))
    assert await peer.text("it") == "True"
    rounds = 2 if version == STATELESS else 1
    assert log == ["open agen", "close agen"] * rounds


async def test_a_plain_dependency_runs_on_the_thread_of_the_handler() -> None:
    server, threads = make_server(), []

    def dependency() -> Iterator[None]:
        threads.append(threading.get_ident())
        yield
        threads.append(threading.get_ident())

    @server.tool
    def it(x: Annotated[None, Depends(dependency)]) -> None:
        threads.append(threading.get_ident())

    await PipelineClient(server).call("it")
    assert len(threads) == 3
    assert len(set(threads)) == 1


async def test_a_plain_dependency_may_set_and_reset_context_variables() -> None:
    server, seen = make_server(), list[str]()
    colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")

    def paint() -> Iterator[str]:
        token = colour.set("red")
        yield "painted"
        seen.append(colour.get())
        colour.reset(token)

    @server.tool
    async def look(paint: Annotated[str, Depends(paint)]) -> str:
        return colour.get()

    @server.tool
    def look_in_a_thread(paint: Annotated[str, Depends(paint)]) -> str:
        return colour.get()

    @server.tool
    async def change(paint: Annotated[str, Depends(paint)]) -> str:
        colour.set("blue")
        return colour.get()

    peer = PipelineClient(server)
    assert [await peer.text(name) for name in ("look", "look_in_a_thread", "change")] == ["red", "red", "blue"]
    assert seen == ["red", "red", "blue"]


def test_an_unfilled_parameter_of_a_dependency_is_refused_at_declaration() -> None:
    def provide(ctx: Context, what: str) -> str:
        return what

    def it(x: Annotated[str, Depends(provide)]) -> None: ...

    with pytest.raises(DeclarationError, match="nothing fills its parameter 'what'"):
        build_tool(it)


def test_a_dependency_on_itself_is_refused_at_declaration() -> None:
    def first(x: Any) -> None: ...

    def second(x: Annotated[None, Depends(first)]) -> None: ...

    first.__annotations__["x"] = Annotated[None, Depends(second)]
    with pytest.raises(DeclarationError, match="depends on itself"):
        build_tool(second)


async def test_a_dependency_gets_the_context_without_an_annotation() -> None:
    server = make_server()

    @server.tool
    async def it(x: Annotated[str, Depends(lambda ctx: ctx.tool_name)]) -> str:
        return x

    assert await PipelineClient(server).text("it") == "it"


async def test_depends_as_a_default_is_filled_by_the_server_only() -> None:
    server = make_server()

    def house(x_house: str = Header()) -> str:  # type: ignore[assignment]
        return x_house

    def owner(house: str = Depends(house)) -> str:  # type: ignore[assignment]
        return f"owner of {house}"

    @server.tool
    def sell(price: int, owner: str = Depends(owner), tag: str = Header("X-Tag")) -> str:  # type: ignore[assignment]
        return f"{owner} sells for {price} ({tag})"

    peer = PipelineClient(server, headers={"X-House": "home", "X-Tag": "red"})
    (listed,) = (await peer.request("tools/list"))["tools"]
    assert set(listed["inputSchema"]["properties"]) == {"price"}
    assert await peer.text("sell", price=3) == "owner of home sells for 3 (red)"
    assert "unknown argument 'owner'" in await peer.error("sell", price=3, owner="somebody else")
