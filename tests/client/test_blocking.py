"""The blocking client."""

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import anyio
import pytest
from asgiref.sync import ThreadSensitiveContext, iscoroutinefunction, sync_to_async
from mcp import MCPError

from mcp_django.client import BlockingClient, CallError, Client, ClientConnectionError
from mcp_django.client.operations import Operations
from tests.client.script import ERAS, Script
from tests.support.waiting import WAIT_SECONDS

TOOLS = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
TEXT = [{"type": "text", "text": "3"}]
ON_THE_LOOP = {"loop", "set_observer"}
PUBLIC = [name for name in vars(Operations) if not name.startswith("_") and name not in ON_THE_LOOP]


def test_calls_without_an_event_loop(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script, heard = Script(era, tools_list=TOOLS, tools_call={"content": TEXT}), list[Any]()
            with Client(script).blocking() as client:
                forget = client.on_log(heard.append)
                assert client.is_connected
                assert [tool.name for tool in client.list_tools()] == ["add"]
                assert client.call_tool("add", {"a": 1}).content[0].model_dump()["text"] == "3"
                assert client.exchange("tools/call", {"name": "add"})["content"] == TEXT
                client.ping()
                assert client.server_info is not None
                assert (client.server_info.name, client.alias) == ("script", None)
                forget()
            assert not client.is_connected
            assert script.opened == 1


def test_many_threads_share_the_client_and_its_connection() -> None:
    script = Script(tools_list=TOOLS)
    client = Client(script).blocking()
    with ThreadPoolExecutor(8) as pool:
        assert len([tools for tools in pool.map(lambda _: client.list_tools(), range(40)) if tools]) == 40
    assert script.opened == 1
    client.close()


def test_errors_are_those_of_the_client() -> None:
    script = Script(tools_call=MCPError(-32000, "No"))
    with Client(script).blocking() as client, pytest.raises(CallError):
        client.call_tool("add")
    with pytest.raises(ClientConnectionError, match="closed"):
        client.call_tool("add")


async def test_an_event_loop_in_the_thread_is_an_error_with_advice() -> None:
    client = Client(Script()).blocking()
    with pytest.raises(RuntimeError, match="await the methods of its Client"):
        client.list_tools()


async def test_a_thread_may_use_a_client_that_is_connected_on_another_loop() -> None:
    script = Script(tools_list=TOOLS)
    async with Client(script) as client:
        found = await sync_to_async(client.blocking().list_tools, thread_sensitive=False)()
        assert [tool.name for tool in found] == ["add"]
        assert client.loop is asyncio.get_running_loop()
    assert script.opened == 1


def test_it_has_all_methods_of_a_client(subtests: pytest.Subtests) -> None:
    for name in PUBLIC:
        with subtests.test(name=name):
            theirs, ours = getattr(Operations, name), inspect.getattr_static(BlockingClient, name, None)
            assert ours is not None
            if callable(theirs):
                assert inspect.signature(theirs) == inspect.signature(ours)
                assert ours.__doc__ == theirs.__doc__
                assert not iscoroutinefunction(ours)


def test_there_is_one_loop_thread_however_many_clients_there_are() -> None:
    clients = [Client(Script(tools_list=TOOLS)).blocking() for _ in range(5)]
    for client in clients:
        client.list_tools()
    assert [thread.name for thread in threading.enumerate()].count("mcp-client") == 1
    for client in clients:
        client.close()


def test_an_interrupted_caller_cancels_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(tools_call=lambda _: anyio.sleep_forever())
    called = threading.Event()
    script.wake = called.set  # type: ignore[method-assign]
    client = Client(script).blocking()
    client.connect()
    called.clear()

    def interrupted(self: Any, timeout: float | None = None) -> Any:
        called.wait(WAIT_SECONDS)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("add")
    for _ in range(100):
        if script.cancelled:
            break
        client.ping()
    assert script.cancelled
    client.close()


FORK = """
import os, sys
from tests.client.script import Script
from mcp_django.client import Client

script = Script(tools_list={"tools": []})
client = Client(script).blocking()
client.connect()
child = os.fork()
if not child:
    assert not client.is_connected
    assert client.list_tools() == [] and script.opened == 2
    client.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert client.is_connected and client.list_tools() == [] and script.opened == 1
print("both")
"""
EXIT = """
from contextlib import asynccontextmanager
from tests.client.script import Script
from mcp_django.client import Client

class Target(Script):
    @asynccontextmanager
    async def open(self):
        async with super().open() as streams:
            yield streams
        print("closed")

client = Client(Target()).blocking()
client.connect()
print("end")
"""


def run_code(code: str) -> str:
    """Run code in a process of its own, and return its output."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_process_has_a_loop_and_connections_of_its_own() -> None:
    assert run_code(FORK) == "both\n"


def test_connections_are_closed_at_the_end_of_the_process() -> None:
    assert run_code(EXIT) == "end\nclosed\n"


def test_without_the_sdk_the_error_names_the_package_to_install() -> None:
    code = (
        "import sys; sys.modules['mcp'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'mcp' else find(name, *a)\n"
        "import mcp_django\n"
        "try: import mcp_django.client\n"
        "except ImportError as error: print(error)\n"
    )
    assert "pip install 'mcp-django-channels[client]'" in run_code(code)


def test_a_project_starts_without_the_sdk() -> None:
    """An import takes a quarter of a second in each process, and most of them connect to no server."""
    assert run_code("import sys, django; django.setup(); print({'mcp', 'mcp_types'} & sys.modules.keys())") == "set()\n"


def test_a_callback_may_use_the_thread_of_a_waiting_view() -> None:
    """As the ORM does, in code that awaits it."""

    async def elicit(params: Any) -> dict[str, str]:
        return {"name": await asyncio.wait_for(sync_to_async(lambda: "Ada")(), WAIT_SECONDS)}

    def ask(params: dict[str, Any]) -> dict[str, Any]:
        if "inputResponses" in params:
            return {"content": TEXT}
        form = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        question = {"method": "elicitation/create", "params": form}
        return {"resultType": "input_required", "inputRequests": {"name": question}, "requestState": "s"}

    client = Client(Script("stateless", tools_call=ask), elicitation=elicit).blocking()

    async def serve() -> Any:
        async with ThreadSensitiveContext():  # as Django has it for each request
            try:
                return await sync_to_async(client.call_tool)("ask")
            finally:
                await sync_to_async(client.close)()

    assert not asyncio.run(asyncio.wait_for(serve(), 2 * WAIT_SECONDS)).is_error
