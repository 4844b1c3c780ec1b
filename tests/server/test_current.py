"""The current call: known wherever a call's code runs, and nowhere else."""

import asyncio
import threading
from typing import Any

from asgiref.sync import sync_to_async

from mcp_django import Context, Server
from mcp_django.auth.principal import local_principal
from mcp_django.observability import Call, current_call
from mcp_django.transports.inprocess.client import InProcessClient
from tests.server.client import HANDSHAKE, PipelineClient, make_server


def method() -> str | None:
    """Return the current call, as helper code finds it."""
    call = current_call()
    return None if call is None else f"{call.method} {call.params.get('name')}"


def make_recording_server(found: list[Any]) -> Server:
    server = make_server()

    @server.tool
    async def outer() -> None:
        found.append(method())

    @server.tool
    def inner() -> None:
        found.append(method())

    @server.tool
    async def everywhere() -> None:
        found.extend(await asyncio.gather(sync_to_async(method)(), asyncio.to_thread(method), _later()))
        thread = threading.Thread(target=lambda: found.append(method()))
        thread.start()
        thread.join()

    @server.tool
    async def nested() -> None:
        found.append(method())
        await InProcessClient(server, local_principal()).call_tool("outer", {})
        found.append(method())

    return server


async def _later() -> str | None:
    await asyncio.sleep(0)
    return method()


async def test_there_is_no_current_call_outside_of_a_call() -> None:
    assert current_call() is None


async def test_code_of_a_handler_finds_the_current_call() -> None:
    found: list[Any] = []
    await PipelineClient(make_recording_server(found)).call("outer")
    await PipelineClient(make_recording_server(found), version=HANDSHAKE).call("inner")
    assert found == ["tools/call outer", "tools/call inner"]
    assert current_call() is None


async def test_tasks_and_threads_of_asyncio_and_asgiref_find_the_current_call() -> None:
    found: list[Any] = []
    await PipelineClient(make_recording_server(found)).call("everywhere")
    # A bare thread has no context variables of its starter's.
    assert found == ["tools/call everywhere"] * 3 + [None]


async def test_a_nested_call_is_the_current_one_until_it_ends() -> None:
    found: list[Any] = []
    await PipelineClient(make_recording_server(found)).call("nested")
    assert found == ["tools/call nested", "tools/call outer", "tools/call nested"]


async def test_concurrent_calls_have_separate_current_calls() -> None:
    found: list[Any] = []
    server = make_recording_server(found)
    peers = [PipelineClient(server) for _ in range(20)]
    await asyncio.gather(*(peer.call("outer" if n % 2 else "inner") for n, peer in enumerate(peers)))
    assert sorted(found) == ["tools/call inner"] * 10 + ["tools/call outer"] * 10


async def test_the_current_call_is_the_original_one_behind_middleware() -> None:
    seen: list[Any] = []

    async def note(call: Call, call_next: Any) -> Any:
        seen.append(call)
        return await call_next(call)

    server = make_server(middleware=[note])

    @server.tool
    async def look(ctx: Context) -> None:
        seen.append(current_call())

    await PipelineClient(server).call("look")
    assert seen[0] is seen[1]


async def test_a_notification_is_current_while_it_is_handled() -> None:
    seen: list[Any] = []

    async def note(call: Call, call_next: Any) -> Any:
        seen.append(current_call())
        return await call_next(call)

    await PipelineClient(make_server(middleware=[note])).notify("notifications/initialized")
    assert seen[0].method == "notifications/initialized"
    assert current_call() is None
