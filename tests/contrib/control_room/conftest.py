"""A server whose calls are recorded, and its recorder without a thread."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django import Server, ToolError, wiring
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.contrib.control_room.recording import record_queue, schedule
from mcp_django.contrib.control_room.recording import recorder as recorder_module
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from mcp_django.runtime.calls.observer import add_outcome_recorder, remove_outcome_recorder
from mcp_django.server.primitives.registry import get_registry
from tests.server.client import PipelineClient

ALIAS = "recorded"


def make_caller(name: str = "ada", **options: Any) -> DjangoPrincipal:
    return DjangoPrincipal(issuer="tests", subject=name, client_id="cli", **options)


@pytest.fixture
def change(settings: Any) -> Callable[..., None]:
    """Set options of the recorder."""

    def change(**options: Any) -> None:
        settings.MCP = {
            "AUTH": "none",
            "SERVERS": {"default": {}, ALIAS: {"STORED": False}},
            "RECORD": options,
        }

    return change


@pytest.fixture
def recorder(db: None, change: Callable[..., None]) -> Iterator[CallRecorder]:
    """The recorder of the test's calls."""
    change()
    recorder = CallRecorder(starts_thread=False)
    add_outcome_recorder(recorder.queue.record)
    yield recorder
    remove_outcome_recorder(recorder.queue.record)


def set_recorder_time(monkeypatch: pytest.MonkeyPatch, read: Callable[[], float]) -> None:
    """Let the recorder read the time, in seconds, from a function."""
    for module in (record_queue, recorder_module, schedule):
        monkeypatch.setattr(module, "time", read)


@pytest.fixture
def server(recorder: CallRecorder) -> Iterator[Server]:
    """A server with tools, a prompt and resources."""
    server, registry = wiring.get_server(ALIAS), get_registry(ALIAS)

    @server.tool
    async def greet(name: str = "you") -> str:
        """Greet."""
        return f"hello {name}"

    @server.tool
    async def fail(secret: str = "", country: str = "") -> str:
        """Fail."""
        raise ToolError(f"No {secret}")

    @server.tool
    async def break_down(secret: str = "") -> str:
        """Break."""
        raise RuntimeError(secret)

    @server.resource("notes://{name}")
    async def read_note(name: str) -> str:
        """Read a note."""
        return name

    @server.prompt
    async def welcome(name: str = "you") -> str:
        """Welcome."""
        return f"welcome {name}"

    yield server
    for prompt in list(registry.prompts):
        registry.remove("prompt", prompt.name)
    for tool in list(registry.tools):
        registry.remove("tool", tool.name)
    for template in list(registry.templates):
        registry.remove("template", template.key)


class BlockingClient:
    """A client for plain tests, whose recorder writes on the test's own connection."""

    def __init__(self, server: Server, principal: DjangoPrincipal | None = None) -> None:
        self._server = server
        self._principal = principal or make_caller()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        async def send() -> dict[str, Any]:
            return await PipelineClient(self._server, principal=self._principal).request(method, params or {})

        return async_to_sync(send)()


@pytest.fixture
def caller(server: Server) -> BlockingClient:
    """A client of the server."""
    return BlockingClient(server)
