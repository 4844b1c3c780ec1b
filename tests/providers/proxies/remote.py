"""A remote server on the official SDK, and ways to it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import mcp_types as types
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel, Field

from mcp_django import Server
from mcp_django.client import ClientConnectionError
from mcp_django.protocol.revisions import STATELESS
from mcp_django.providers.proxies import Proxy
from mcp_django.providers.proxies.sources import TargetSource
from tests.server.engine import Peer, make_server


class Sum(BaseModel):
    total: int


class Name(BaseModel):
    name: str


@dataclass
class Remote:
    """One server, and what happened to it. As a target it is reached in memory, by connections of their own."""

    era: str | None = None
    """The one that it is spoken to in; None for whichever is agreed on."""
    server: MCPServer = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)
    down: bool = False
    opened: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.server = MCPServer("remote")
        declare(self)

    def open(self) -> AbstractAsyncContextManager[Any]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        if self.down:
            raise ClientConnectionError("The server is down")
        self.opened += 1
        async with InMemoryTransport(self.server) as streams:
            yield streams


def declare(remote: Remote) -> None:
    server = remote.server

    @server.tool(title="Adds", annotations=types.ToolAnnotations(read_only_hint=True), meta={"x/y": 1})
    async def add(a: int, b: Annotated[int, Field(ge=0)] = 1) -> Sum:
        """Adds two numbers."""
        remote.counts["add"] += 1
        return Sum(total=a + b)

    @server.tool()
    async def fails() -> str:
        raise ValueError("no luck")

    @server.tool()
    async def slow(ctx: Context) -> str:
        remote.reached.set()
        try:
            await remote.gate.wait()
        except BaseException:
            remote.cancelled.set()
            raise
        return "done"

    @server.tool()
    async def steps(ctx: Context) -> str:
        await ctx.report_progress(1, 3, "one")
        await ctx.report_progress(2, 3, "two")
        return "done"

    @server.tool()
    async def greet(ctx: Context) -> str | types.InputRequiredResult:
        remote.counts["greet"] += 1
        if ctx.request_context.protocol_version in STATELESS:
            answers = ctx.input_responses
            if answers is None:
                schema = {"type": "object", "properties": {"name": {"type": "string"}}}
                form = types.ElicitRequestFormParams(message="Who are you?", requested_schema=schema)
                asked = {"who": types.ElicitRequest(params=form)}
                return types.InputRequiredResult(input_requests=asked, request_state="a secret of the remote")
            assert ctx.request_state == "a secret of the remote"
            given = answers["who"]
            return f"Hello {given.content['name']}" if given.action == "accept" else given.action
        answer = await ctx.elicit("Who are you?", Name)
        return f"Hello {answer.data.name}" if answer.action == "accept" else answer.action

    @server.resource("thing://one", mime_type="text/plain")
    async def one() -> str:
        return "the first"

    @server.resource("thing://by/{name}")
    async def named(name: str) -> str:
        return f"called {name}"

    @server.prompt(title="Plan")
    async def plan(city: str) -> str:
        """Plans a trip."""
        return f"Go to {city}"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
        return types.Completion(values=[f"{argument.value}urich", f"{argument.value}ug"], total=2, has_more=False)


def served(remote: Any, **options: Any) -> Server:
    """A server that passes it on under the prefix "r"."""
    given = {"prefix": "r", "permission": "any", **options}
    source = TargetSource("r", remote, protocol_version=remote.era, max_retries=0)
    return make_server(proxies=[Proxy(source, **given)])


def peer_of(remote: Any, *, options: dict[str, Any] | None = None, **peer: Any) -> Peer:
    """A client of it."""
    return Peer(served(remote, **(options or {})), **peer)
