"""The client's end of a channel, and a record of the steps of handlers."""

import asyncio
import json
from typing import Any

from asgiref.sync import sync_to_async

from mcp_django.models import Session
from mcp_django.transports.connection.connection import DuplexConnection

STATELESS, HANDSHAKE = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
NEVER = 1e9
"""Seconds that no test lets pass."""


class FakeClient:
    """The client's end of a channel."""

    def __init__(self, duplex: DuplexConnection) -> None:
        self.duplex = duplex
        self.waiting: list[dict[str, Any]] = []

    async def send(self, message: Any) -> None:
        await self.duplex.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def next(self) -> dict[str, Any]:
        while not self.waiting:
            messages = await self.duplex.read(NEVER)
            assert messages is not None, self.duplex.close_reason
            self.waiting += map(json.loads, messages)
        return self.waiting.pop(0)

    async def rest(self) -> list[dict[str, Any]]:
        while (messages := await self.duplex.read(NEVER)) is not None:
            self.waiting += map(json.loads, messages)
        waiting, self.waiting = self.waiting, []
        return waiting

    async def modern(self, id: Any, method: str, **params: Any) -> None:
        meta = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}}
        await self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}})

    async def legacy(self, id: Any, method: str, **params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    async def notify(self, method: str, **params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def initialize(self, version: str = HANDSHAKE, **capabilities: Any) -> None:
        info = {"name": "tests", "version": "1"}
        await self.legacy("hello", "initialize", protocolVersion=version, capabilities=capabilities, clientInfo=info)
        assert (await self.next())["result"]["protocolVersion"] == version
        await self.notify("notifications/initialized")


class Stage:
    """A record of the steps of handlers."""

    def __init__(self) -> None:
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        self.go = asyncio.Event()


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


async def live_sessions() -> int:
    return await sync_to_async(Session.objects.filter(terminated_at=None).count)()
