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
    """What helper code sees."""
    call = current_call()
    return None if call is None else f"{call.method} {call.params.get('name')}"


def made(found: list[Any]) -> Server:
    server = make_server()

    @server.tool
    async def here() -> None:
        found.append(method())

    @server.tool
    def there() -> None:
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
        await InProcessClient(server, local_principal()).call_tool("here", {})
        found.append(method())

    return server


async def _later() -> str | None:
    await asyncio.sleep(0)
    return method()


async def test_there_is_none_outside_of_a_call() -> None:
    assert current_call() is None


async def test_a_handler_s_code_finds_it() -> None:
    found: list[Any] = []
    await PipelineClient(made(found)).call("here")
    await PipelineClient(made(found), version=HANDSHAKE).call("there")
    assert found == ["tools/call here", "tools/call there"]
    assert current_call() is None


async def test_tasks_and_threads_that_asyncio_and_asgiref_start_find_it() -> None:
    found: list[Any] = []
    await PipelineClient(made(found)).call("everywhere")
    # A bare thread has no context variables of its starter's.
    assert found == ["tools/call everywhere"] * 3 + [None]


async def test_a_call_inside_a_call_is_the_current_one_until_it_ends() -> None:
    found: list[Any] = []
    await PipelineClient(made(found)).call("nested")
    assert found == ["tools/call nested", "tools/call here", "tools/call nested"]


async def test_calls_side_by_side_do_not_see_each_other() -> None:
    found: list[Any] = []
    server = made(found)
    peers = [PipelineClient(server) for _ in range(20)]
    await asyncio.gather(*(peer.call("here" if n % 2 else "there") for n, peer in enumerate(peers)))
    assert sorted(found) == ["tools/call here"] * 10 + ["tools/call there"] * 10


async def test_it_is_the_one_that_came_in_whatever_middleware_passes_on() -> None:
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


async def test_a_notification_is_current_while_it_is_acted_on() -> None:
    seen: list[Any] = []

    async def note(call: Call, call_next: Any) -> Any:
        seen.append(current_call())
        return await call_next(call)

    await PipelineClient(make_server(middleware=[note])).notify("notifications/initialized")
    assert seen[0].method == "notifications/initialized"
    assert current_call() is None
