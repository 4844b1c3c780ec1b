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
from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.protocol.revisions import STATELESS_VERSIONS
from tests.server.client import PipelineClient, make_server


class Sum(BaseModel):
    total: int


class Name(BaseModel):
    name: str


@dataclass
class Remote:
    """A server with a record of its calls. As a target, it is reached in memory on separate connections."""

    era: str | None = None
    """The one that it is spoken to in; None for whichever is agreed on."""
    server: MCPServer = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)
    down: bool = False
    silent: bool = False
    """True if a connection gets no answer."""
    opened: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._ways: list[Any] = []
        self.server = MCPServer("remote")
        declare(self)

    def open(self) -> AbstractAsyncContextManager[Any]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        if self.down:
            raise ClientConnectionError("The server is down")
        if self.silent:
            await self.gate.wait()
        self.opened += 1
        async with InMemoryTransport(self.server) as streams:
            self._ways.append(streams[0])
            yield streams

    async def go_down(self) -> None:
        """Cut all connections, and refuse new ones."""
        self.down = True
        for way in self._ways:
            await way.aclose()
        await asyncio.sleep(0)


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
        if ctx.protocol_version in STATELESS_VERSIONS:
            answers = ctx.input_responses
            if answers is None:
                schema = {"type": "object", "properties": {"name": {"type": "string"}}}
                form = types.ElicitRequestFormParams(message="Who are you?", requested_schema=schema)
                asked = {"who": types.ElicitRequest(params=form)}
                return types.InputRequiredResult(input_requests=asked, request_state="a secret of the remote")
            assert ctx.request_state == "a secret of the remote"
            given = answers["who"]
            return f"Hello {given.content['name']}" if given.action == "accept" else given.action
        try:
            answer = await ctx.elicit("Who are you?", Name)
        except BaseException:
            remote.cancelled.set()
            raise
        return f"Hello {answer.data.name}" if answer.action == "accept" else answer.action

    @server.tool()
    async def chatty(ctx: Context) -> str:
        await ctx.info("half way", logger_name="works")
        return "done"

    @server.tool()
    async def poem(ctx: Context) -> str | types.InputRequiredResult:
        message = types.SamplingMessage(role="user", content=types.TextContent(text="A poem"))
        if ctx.protocol_version in STATELESS_VERSIONS:
            if ctx.input_responses is None:
                params = types.CreateMessageRequestParams(messages=[message], max_tokens=10)
                return types.InputRequiredResult(input_requests={"poem": types.CreateMessageRequest(params=params)})
            said = ctx.input_responses["poem"]
        else:
            said = await ctx.session.create_message(messages=[message], max_tokens=10)
        return str(said.content.text)

    @server.tool()
    async def places(ctx: Context) -> str | types.InputRequiredResult:
        if ctx.protocol_version in STATELESS_VERSIONS:
            if ctx.input_responses is None:
                return types.InputRequiredResult(input_requests={"where": types.ListRootsRequest()})
            found = ctx.input_responses["where"]
        else:
            found = await ctx.session.list_roots()
        return " ".join(str(root.uri) for root in found.roots)

    @server.tool(annotations=types.ToolAnnotations(idempotent_hint=True))
    async def twice(ctx: Context) -> str:
        remote.counts["twice"] += 1
        one = await ctx.elicit("One?", Name)
        two = await ctx.elicit("Two?", Name)
        return f"{one.data.name} {two.data.name}"

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


def proxy_of(remote: Remote, **options: Any) -> Proxy:
    """A proxy of a remote with the prefix "r", open to all callers."""
    source = TargetSource("r", remote, protocol_version=remote.era, max_retries=0)
    return Proxy(source, **{"permission": "any", **options})


def served(what: Remote | Proxy, **options: Any) -> Server:
    """A server with proxies."""
    return make_server(providers=[what if isinstance(what, Proxy) else proxy_of(what, **options)])


def peer_of(remote: Remote, *, options: dict[str, Any] | None = None, **peer: Any) -> PipelineClient:
    """A client of such a server."""
    return PipelineClient(served(remote, **(options or {})), **peer)
