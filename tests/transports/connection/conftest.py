"""A server with a few tools, and its channels."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_django import Context, Server
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.transports.connection.connection import open_connection
from mcp_django.transports.connection.options import ConnectionOptions
from mcp_django.transports.services import build_services
from mcp_django.wiring import get_ports
from tests.transports.connection.client import FakeClient, Stage

ALICE = DjangoPrincipal(issuer="tests", subject="alice", scopes=frozenset({"read"}))


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def server(stage: Stage, db: None) -> Server:
    server = Server("channels", "1", alias="channels")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait() -> str:
        stage.begun.set()
        try:
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.cancelled.set()
            raise
        return "done"

    @server.tool
    async def scopes(ctx: Context) -> list[str]:
        return sorted(ctx.principal.scopes)

    @server.tool
    async def note(ctx: Context) -> list[str]:
        ctx.request.notes.append(ctx.request.user)
        return ctx.request.notes

    @server.tool
    async def confirm(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    @server.tool
    async def flood(ctx: Context, messages: int) -> str:
        for number in range(messages):
            await ctx.info("x" * 1000)
            if number == 100:
                stage.begun.set()
        return "flooded"

    return server.bind(get_ports("channels"))


@pytest.fixture
def peer(server: Server) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened(**terms: Any) -> AsyncIterator[FakeClient]:
        duplex = open_connection(build_services(server), ALICE, ConnectionOptions(**terms))
        try:
            yield FakeClient(duplex)
        finally:
            await duplex.close()

    return opened
