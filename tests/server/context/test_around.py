"""Functions of AROUND: their kinds, their order, and their exceptions."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from mcp_django import Context, Server, ToolError
from mcp_django.providers.mounts import Mount
from mcp_django.server.options import ServerOptions
from tests.server.client import PipelineClient, make_server

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _no_log() -> None:
    LOG.clear()


def plain_generator(ctx: Context) -> Iterator[None]:
    LOG.append("in plain_generator")
    yield
    LOG.append("out of plain_generator")


async def async_generator(ctx: Context) -> AsyncIterator[None]:
    LOG.append("in async_generator")
    yield
    LOG.append("out of async_generator")


plain_manager = contextmanager(plain_generator)
async_manager = asynccontextmanager(async_generator)


def plain_function(ctx: Context) -> Any:
    return plain_manager(ctx)


async def async_function(ctx: Context) -> Any:
    return async_manager(ctx)


async def async_function_of_a_plain_manager(ctx: Context) -> Any:
    return plain_manager(ctx)


class PlainClass:
    def __init__(self, ctx: Context) -> None:
        self.name = type(self).__name__

    def __enter__(self) -> None:
        LOG.append(f"in {self.name}")

    def __exit__(self, *problem: Any) -> None:
        LOG.append(f"out of {self.name}")


class AsyncClass:
    def __init__(self, ctx: Context) -> None:
        self.name = type(self).__name__

    async def __aenter__(self) -> None:
        LOG.append(f"in {self.name}")

    async def __aexit__(self, *problem: Any) -> None:
        LOG.append(f"out of {self.name}")


def make_wrapped_server(*around: Any, **options: Any) -> Any:
    server = make_server(options={"around": around, **options})

    @server.tool
    async def work() -> str:
        LOG.append("work")
        return "done"

    @server.tool
    def work_in_a_thread() -> str:
        LOG.append("work")
        return "done"

    return server


@pytest.mark.parametrize("tool", ["work", "work_in_a_thread"])
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (plain_generator, "plain_generator"),
        (async_generator, "async_generator"),
        (plain_manager, "plain_generator"),
        (async_manager, "async_generator"),
        (plain_function, "plain_generator"),
        (async_function, "async_generator"),
        (async_function_of_a_plain_manager, "plain_generator"),
        (PlainClass, "PlainClass"),
        (AsyncClass, "AsyncClass"),
    ],
)
async def test_a_function_may_be_of_many_kinds(function: Any, name: str, tool: str) -> None:
    assert await PipelineClient(make_wrapped_server(function)).text(tool) == "done"
    assert [f"in {name}", "work", f"out of {name}"] == LOG


async def test_the_first_manager_is_the_outermost_for_every_kind() -> None:
    around = (async_manager, plain_manager, PlainClass, AsyncClass, plain_generator)
    assert await PipelineClient(make_wrapped_server(*around)).text("work") == "done"
    names = ["async_generator", "plain_generator", "PlainClass", "AsyncClass", "plain_generator"]
    assert [*(f"in {name}" for name in names), "work", *(f"out of {name}" for name in reversed(names))] == LOG


async def test_managers_of_the_host_are_outside_of_those_of_a_mounted_server() -> None:
    mounted = Server("mounted", "1", options=ServerOptions(around=(PlainClass,)))

    @mounted.tool
    async def work() -> str:
        LOG.append("work")
        return "done"

    host = make_server(options={"around": (async_manager,)}, mounts=[Mount(mounted, prefix="inner")])
    assert await PipelineClient(host).text("inner__work") == "done"
    assert LOG == ["in async_generator", "in PlainClass", "work", "out of PlainClass", "out of async_generator"]


async def test_managers_of_a_mounted_server_alone_surround_its_tools() -> None:
    mounted = Server("mounted", "1", options=ServerOptions(around=(PlainClass,)))

    @mounted.tool
    async def work() -> str:
        return "done"

    host = make_server(mounts=[Mount(mounted, prefix="inner")])
    assert await PipelineClient(host).text("inner__work") == "done"
    assert LOG == ["in PlainClass", "out of PlainClass"]


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (PermissionDenied("not you"), "not you"),
        (ToolError("not now"), "not now"),
        (Http404("no such hotel"), "no such hotel"),
    ],
)
async def test_an_exception_of_a_manager_is_handled_as_one_of_the_handler(problem: Exception, text: str) -> None:
    def refuse(ctx: Context) -> Any:
        raise problem

    async def refuse_async(ctx: Context) -> Any:
        raise problem

    for function in (refuse, refuse_async):
        result = await PipelineClient(make_wrapped_server(function)).call("work")
        assert (result["isError"], result["content"][0]["text"]) == (True, text)
    assert LOG == []


async def test_a_function_without_a_manager_is_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    result = await PipelineClient(make_wrapped_server(lambda ctx: None)).call("work")
    assert result["isError"] is True
    assert "AROUND" not in result["content"][0]["text"]
    assert "returned NoneType; decorate it with contextlib.contextmanager" in caplog.text


async def test_a_manager_must_not_suppress_exceptions(caplog: pytest.LogCaptureFixture) -> None:
    @contextmanager
    def suppress(ctx: Context) -> Iterator[None]:
        try:
            yield
        except ToolError:
            pass

    @asynccontextmanager
    async def suppress_async(ctx: Context) -> AsyncIterator[None]:
        try:
            yield
        except ToolError:
            pass

    for manager in (suppress, suppress_async):
        server = make_server(options={"around": (manager,)})

        @server.tool
        async def fail() -> str:
            raise ToolError("failed")

        assert (await PipelineClient(server).call("fail"))["isError"] is True
        assert "suppressed the exception of a handler" in caplog.text
        caplog.clear()
