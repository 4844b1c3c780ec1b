"""Remotes that answer a call with a task: the proxy polls it, and returns its result."""

import asyncio
from typing import Any

import pytest
from mcp import MCPError as RemoteError

from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.extensions import Extension, Tool
from tests.client.task_server import COMPLETED, FORM, TEXT, WORKING, TaskServer, asks
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_server
from tests.support.clock import Clock

VERSIONS = [STATELESS, HANDSHAKE]
UPSTREAM = ["stateless", "handshake"]
AGE = {**FORM, "params": {**FORM["params"], "message": "Your age?"}}  # type: ignore[dict-item]


class Tasks:
    """A target whose connections lead to one server of tasks, each with a wire of its own."""

    def __init__(self, server: TaskServer) -> None:
        self.server = server
        self.capabilities = server.script.capabilities

    def open(self) -> Any:
        copy = TaskServer(self.server.era)
        copy.__dict__.update({name: value for name, value in self.server.__dict__.items() if name != "script"})
        copy.script.received = self.server.script.received
        copy.script.capabilities = self.capabilities
        self.latest = copy
        return copy.script.open()


def peer_of(server: TaskServer, **peer: Any) -> PipelineClient:
    source = TargetSource("r", Tasks(server), protocol_version=server.era, max_retries=0)
    return PipelineClient(make_server(providers=[Proxy(source, permission="any")]), **peer)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("upstream", UPSTREAM)
@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}])
async def test_a_task_of_the_remote_is_polled_for_the_caller(
    version: str, upstream: str, capabilities: dict[str, Any], clock: Clock
) -> None:
    server = TaskServer(upstream, WORKING, {"statusMessage": "half"}, COMPLETED)
    peer = peer_of(server, version=version, capabilities=capabilities)
    assert await clock.advance_while(peer.text("r__survey")) == "done"
    assert server.count("tasks/get") == 3
    assert "t1" not in str(await peer.names())


@pytest.mark.parametrize("version", VERSIONS)
async def test_questions_of_a_task_reach_the_caller(version: str, clock: Clock) -> None:
    asked: list[str] = []

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return accept(name="Ada")

    server = TaskServer("stateless", WORKING, asks(a=FORM), asks(a=FORM, b=AGE), WORKING, COMPLETED)
    peer = peer_of(server, version=version, answer=answer)
    assert await clock.advance_while(peer.text("r__survey")) == "done"
    assert asked == ["r: Your name?", "r: Your age?"]
    assert [sorted(responses) for responses in server.responses] == [["a"], ["b"]]
    assert server.count("tools/call") == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_questions_of_a_handshake_task_reach_the_caller(version: str, clock: Clock) -> None:
    server = TaskServer("handshake", asks(), asks(), COMPLETED)
    source = Tasks(server)

    async def ask_then_finish(params: dict[str, Any]) -> dict[str, Any]:
        await source.latest.script.request(FORM["method"], FORM["params"])  # type: ignore[arg-type]
        return {"content": TEXT}

    server.result = ask_then_finish
    proxy = Proxy(TargetSource("r", source, protocol_version="handshake", max_retries=0), permission="any")
    peer = PipelineClient(
        make_server(providers=[proxy]), version=version, answer=lambda method, params: accept(name="Ada")
    )
    assert await clock.advance_while(peer.text("r__survey")) == "done"


async def test_the_id_of_a_task_is_sealed() -> None:
    server = TaskServer("stateless", asks(a=FORM), taskId="a-secret-id", poll=1)
    found = await peer_of(server).call("r__survey")
    assert "inputRequests" in found
    assert "a-secret-id" not in str(found)


@pytest.mark.parametrize("upstream", UPSTREAM)
async def test_a_cancelled_caller_cancels_the_task(upstream: str, clock: Clock) -> None:
    server = TaskServer(upstream, WORKING)
    peer = peer_of(server, capabilities={})
    call = asyncio.create_task(peer.text("r__survey"))
    await clock.advance_until(lambda: server.count("tasks/get"))
    call.cancel()
    await asyncio.wait({call})
    await clock.advance_until(lambda: server.count("tasks/cancel"))


async def test_a_question_for_a_caller_that_cannot_be_asked_ends_the_task(clock: Clock) -> None:
    server = TaskServer("stateless", asks(a=FORM))
    text = await clock.advance_while(peer_of(server, capabilities={}).error("r__survey"))
    assert "request to the client that the client does not support" in text
    assert server.count("tasks/cancel") == 1


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"status": "cancelled"}, "cancelled the call"),
        (RemoteError(-32602, "Unknown task t1"), "has lost the call"),
        ({"status": "failed", "error": {"code": -32603, "message": "secret"}}, "answered with the error -32603"),
        ({"status": "completed", "result": {"content": 3}}, "sent an invalid response"),
        ({"status": "completed"}, "sent an invalid response"),
        ({"taskId": "t2"}, "sent an invalid response"),
    ],
)
async def test_the_error_of_a_failed_task_has_no_details(state: Any, message: str, clock: Clock) -> None:
    server = TaskServer("stateless", state)
    text = await clock.advance_while(peer_of(server, capabilities={}).error("r__survey"))
    assert message in text
    assert "secret" not in text
    assert "t1" not in text


class Observer(Extension):
    """An extension that notes the calls that may become tasks."""

    identifier = "com.example/observer"

    def __init__(self) -> None:
        self.names: list[str] = []

    def intercepts(self, tool: Tool) -> bool:
        return tool.task is not None

    async def call_tool(self, call: Any, tool: Tool, arguments: Any, proceed: Any) -> Any:
        self.names.append(tool.name)
        return await proceed(call)


@pytest.mark.parametrize(
    ("upstream", "support", "may_become_task"),
    [
        ("stateless", "required", True),
        ("handshake", "required", True),
        ("handshake", "optional", True),
        ("handshake", "forbidden", False),
    ],
)
async def test_calls_of_remote_tools_with_tasks_may_become_local_tasks(
    upstream: str, support: str, may_become_task: bool, clock: Clock
) -> None:
    server, observer = TaskServer(upstream, COMPLETED, support=support), Observer()
    source = TargetSource("r", Tasks(server), protocol_version=upstream, max_retries=0)
    peer = PipelineClient(make_server(providers=[Proxy(source, permission="any")], extensions=[observer]))
    assert await clock.advance_while(peer.text("r__survey")) == "done"
    assert bool(observer.names) is may_become_task


async def test_calls_of_remote_tools_without_tasks_never_become_tasks(clock: Clock) -> None:
    server, observer = TaskServer("stateless", COMPLETED), Observer()
    server.script.capabilities = {"tools": {}}
    source = TargetSource("r", Tasks(server), protocol_version="stateless", max_retries=0)
    peer = PipelineClient(make_server(providers=[Proxy(source, permission="any")], extensions=[observer]))
    assert await clock.advance_while(peer.text("r__survey")) == "done"
    assert observer.names == []
