"""A server with the extension, tools whose ends the test decides, and clients."""

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.urls import reverse

from mcp_django import Context, Server, ToolError, wiring
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.rows.database import AVAILABILITY
from mcp_django.protocol.errors import InternalError, MCPError
from mcp_django.runtime.events import database_clock
from mcp_django.server.primitives.registry import get_registry
from mcp_django.types import TaskOptions, ToolAnnotations
from tests.contrib.tasks.clients import TaskClient

ALIAS = "long_jobs"
AT_ONCE = TaskOptions(grace=0)


class Gate:
    """A gate that the tools of a test wait for, with a record of their calls."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.runs: list[str] = []
        self.steps: list[str] = []
        self.seen: dict[str, Any] = {}

    def open(self) -> None:
        self.event.set()

    async def close(self) -> None:
        """Let the tools that still run end before the test does."""
        self.open()
        while await Task.objects.filter(status="working").exclude(worker="").aexists():
            await asyncio.sleep(0)


def get_url(page: str, task: Task) -> str:
    """The URL of a page of a task in the admin."""
    return reverse(f"admin:mcp_tasks_task_{page}", args=[quote(task.pk)])


@pytest.fixture(autouse=True)
def available_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database has answered for a long time."""
    monkeypatch.setattr(AVAILABILITY, "since", -math.inf)


@pytest.fixture(autouse=True)
def time_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database has the time of the test, which the `clock` fixture sets; a real one would not follow it."""
    monkeypatch.setattr(database_clock, "query_database_time", lambda: None)


@pytest.fixture
def change(settings: Any) -> Callable[..., None]:
    """Set options of tasks, and of the server."""

    def change(server: dict[str, Any] | None = None, **options: Any) -> None:
        settings.MCP = {
            "AUTH": "none",
            "SERVERS": {
                "default": {},
                ALIAS: {"EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"], "STORED": False, **(server or {})},
            },
            "TASKS": {"BACKEND_OPTIONS": {"WSGI_THREAD": False}, **options},
        }

    return change


@pytest.fixture
def gate(db: None, change: Callable[..., None]) -> Iterator[Gate]:
    """The tools of the server, until the end of the test."""
    change()
    gate, registry = Gate(), get_registry(ALIAS)
    before = {tool.name for tool in registry.tools}
    declare(wiring.get_server(ALIAS), gate)
    yield gate
    for tool in list(registry.tools):
        if tool.name not in before:
            registry.remove("tool", tool.name)


def declare(server: Server, gate: Gate) -> None:
    """Declare tools that become tasks at once by default."""

    @server.tool(task=AT_ONCE)
    async def wait(label: str = "done") -> str:
        """Wait for the gate."""
        gate.runs.append(label)
        await gate.event.wait()
        return label

    @server.tool(task=True)
    async def quick(label: str = "quick") -> str:
        """Answer at once."""
        gate.runs.append(label)
        return label

    @server.tool(task=TaskOptions(grace=1))
    async def slow(ctx: Context) -> str:
        """Wait, after a step."""
        await ctx.run_once("first", lambda: gate.steps.append("first"))
        gate.runs.append("slow")
        await gate.event.wait()
        answer = await ctx.elicit("Go on?", bool, key="go")
        return f"{answer.action}: {answer.data}"

    @server.tool(task=TaskOptions(required=True, grace=0))
    async def export(kind: str = "ok") -> dict[str, str]:
        """Export, or fail in several ways."""
        if kind == "tool":
            raise ToolError("No such export")
        if kind == "protocol":
            raise MCPError("Refused", data={"why": "test"})
        if kind == "internal":
            raise InternalError("Broken")
        if kind == "bug":
            raise RuntimeError("the password is swordfish")
        return {"kind": kind}

    @server.tool(task=AT_ONCE)
    async def confirm(ctx: Context, name: str) -> str:
        """Ask one question."""
        gate.runs.append(name)
        await ctx.run_once("prepare", lambda: gate.steps.append(name))
        answer = await ctx.elicit(f"Delete {name}?", bool, key="confirm")
        return f"{name}: {answer.action} {answer.data}"

    @server.tool(task=AT_ONCE, atomic=True)
    def charge(ctx: Context) -> str:
        """Ask inside a transaction."""
        return str(ctx.sync.elicit("Go on?", bool).data)

    @server.tool(task=AT_ONCE)
    async def sample(ctx: Context) -> str:
        """Ask the client's model."""
        return (await ctx.sample("Hello?")).text

    @server.tool(task=AT_ONCE)
    async def both(ctx: Context) -> str:
        """Ask two questions at once."""
        answers = await ctx.gather(ctx.elicit("First?", str, key="first"), ctx.elicit("Second?", str, key="second"))
        return " ".join(answer.data for answer in answers)

    @server.tool(task=TaskOptions(grace=1))
    async def introduce(ctx: Context) -> str:
        """Ask first, then take long."""
        answer = await ctx.elicit("Your name?", str, key="user_name")
        await gate.event.wait()
        return f"Hello {answer.data}"

    @server.tool(task=AT_ONCE)
    async def report(ctx: Context) -> str:
        """Report progress, then wait."""
        await ctx.report_progress(1, 4, "a quarter")
        await gate.event.wait()
        return "reported"

    @server.tool(task=TaskOptions(grace=0), annotations=ToolAnnotations(idempotent=True))
    async def repeatable() -> str:
        """Wait; may run again."""
        gate.runs.append("repeatable")
        await gate.event.wait()
        return "repeated"

    @server.tool(task=AT_ONCE, permission="shop.view_order")
    async def orders(ctx: Context) -> str:
        """Wait, for callers with the permission."""
        gate.runs.append("orders")
        return str(ctx.user)

    @server.tool
    async def greet() -> str:
        """Greet."""
        return "hello"


@pytest.fixture
def client(gate: Gate) -> TaskClient:
    return TaskClient(wiring.get_server(ALIAS))
