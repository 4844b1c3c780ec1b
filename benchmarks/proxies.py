"""`python -m benchmarks.proxies`: costs of forwarding a call to another server.

The SDK's client, our client and a proxy make the same `tools/call`, and the figure is the CPU time of this process for
it. "memory" is a server in this process with prepared answers, so that almost only the callers are measured, and no
input or output of the system; "HTTP" and "stdio" are a server on the SDK in another process.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar

from benchmarks import report
from benchmarks.processes import free_port
from benchmarks.serve import project
from mcp_django.protocol.revisions import LATEST

AIM = 200.0
"""Microseconds that a proxied call may cost more than a call of the SDK's client."""
ERAS = {"handshake": "legacy", "stateless": "auto"}
"""Our name of each era, and the SDK's mode for it."""
Call = Callable[[], Awaitable[Any]]


def serve(port: int | None) -> None:
    """Serve the remote over stdio, or at a port."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("remote", log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        return {"sum": a + b}

    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port, json_response=True)


class Ready:
    """A server with prepared answers: the target "memory"."""

    tool: ClassVar[dict[str, Any]] = {
        "name": "add",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    }
    result: ClassVar[dict[str, Any]] = {"content": [{"type": "text", "text": "3"}], "isError": False}

    def __init__(self, era: str) -> None:
        self._stateless = era == "stateless"
        extra: dict[str, Any] = {"resultType": "complete"} if self._stateless else {}
        cached = {"ttlMs": 60_000, "cacheScope": "private"} if self._stateless else {}
        versions = [LATEST.version]
        greeting = {"supportedVersions": versions, "capabilities": {"tools": {}}, **extra, **cached}
        self._answers = {
            "tools/list": {"tools": [self.tool], **extra, **cached},
            "tools/call": {**self.result, **extra},
            **({"server/discover": greeting} if self._stateless else {}),
        }

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        import anyio

        out, client_read = anyio.create_memory_object_stream[Any](100)
        client_write, asked = anyio.create_memory_object_stream[Any](100)
        async with anyio.create_task_group() as group, out, client_read, client_write, asked:
            group.start_soon(self._serve, asked, out)
            yield client_read, client_write
            group.cancel_scope.cancel()

    async def _serve(self, asked: Any, out: Any) -> None:
        import mcp_types as types
        from mcp.shared.message import SessionMessage

        async for item in asked:
            message = item.message
            if not isinstance(message, types.JSONRPCRequest):
                continue
            answer = self._answers.get(message.method)
            if message.method == "initialize":
                version = (message.params or {})["protocolVersion"]
                info = {"name": "ready", "version": "1"}
                answer = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            if answer is None:
                error = types.ErrorData(code=-32601, message="Method not found")
                reply: Any = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
            else:
                reply = types.JSONRPCResponse(jsonrpc="2.0", id=message.id, result=dict(answer))
            await out.send(SessionMessage(reply))


@asynccontextmanager
async def subjects(era: str, target: Any) -> AsyncIterator[dict[str, Call]]:
    """Connect each of the callers, and yield a call of each."""
    from mcp import Client as Official

    from mcp_django import wiring
    from mcp_django.auth.principal import local_principal
    from mcp_django.client import Client
    from mcp_django.contrib.proxies import Proxy
    from mcp_django.contrib.proxies.connections.targets import TargetSource
    from mcp_django.server.server import Server
    from mcp_django.transports.inprocess.client import InProcessClient
    from mcp_django.transports.inprocess.profile import ELICITATION, InProcessProfile

    arguments = {"a": 1, "b": 2}
    async with AsyncExitStack() as stack:
        official = await stack.enter_async_context(Official(target.open(), mode=ERAS[era], cache=None))
        ours = await stack.enter_async_context(Client(target, protocol_version=era))
        proxy = Proxy(TargetSource("remote", target, protocol_version=era), permission="any")
        server = Server("benchmark", providers=[proxy], ports=wiring.get_ports())
        caller, asked = (
            InProcessClient(server, local_principal()),
            InProcessClient(server, local_principal(), InProcessProfile(capabilities=ELICITATION)),
        )
        stack.push_async_callback(proxy.source.close)
        local = Server("benchmark", ports=wiring.get_ports())

        @local.tool(name="add")
        async def add(a: int, b: int) -> dict[str, int]:
            return {"sum": a + b}

        here = InProcessClient(local, local_principal())
        yield {
            "SDK client": lambda: official.call_tool("add", arguments),
            "our client": lambda: ours.call_tool("add", arguments),
            "proxy, nobody to ask": lambda: caller.call_tool("remote__add", arguments),
            "proxy, who can be asked": lambda: asked.call_tool("remote__add", arguments),
            "a tool of our own": lambda: here.call_tool("add", arguments),
        }
        await proxy._get_state().close()


async def measure(call: Call, calls: int) -> float:
    """Return the CPU microseconds of one call."""
    for _ in range(20):
        await call()
    start = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - start) / calls * 1e6


async def compare(target: Any, era: str, *, rounds: int, calls: int) -> dict[str, list[float]]:
    """Return the readings of each caller. The callers take turns."""
    found: dict[str, list[float]] = {}
    async with subjects(era, target) as ways:
        for _ in range(rounds):
            for label, call in ways.items():
                found.setdefault(label, []).append(await measure(call, calls))
    return found


async def run(rounds: int, calls: int) -> str:
    """Return the table."""
    from mcp_django.client import Stdio, StreamableHTTP

    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.proxies", "--serve", str(port))
    try:
        await _until_it_listens(port)
        rows = []
        targets: dict[str, Any] = {
            "memory": None,
            "HTTP": StreamableHTTP(f"http://127.0.0.1:{port}/mcp"),
            "stdio": Stdio(sys.executable, ["-m", "benchmarks.proxies", "--serve", "stdio"], cwd="."),
        }
        for way, target in targets.items():
            for era in ERAS:
                found = await compare(target or Ready(era), era, rounds=rounds, calls=calls)
                base = statistics.median(found["SDK client"])
                for label, readings in found.items():
                    middle = statistics.median(readings)
                    spread = f"{middle:.0f} ({min(readings):.0f}-{max(readings):.0f})"
                    rows.append([f"{way}, {era}", label, spread, f"{middle - base:+.0f}"])
        title = "CPU microseconds of the caller's process per call: median (fewest-most), and over the SDK's client"
        return f"{title}; the bar is +{AIM:.0f}\n\n{report.table(['', '', 'CPU, us', 'over'], rows)}\n"
    finally:
        process.terminate()
        await process.wait()


async def _until_it_listens(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


def main(arguments: list[str] | None = None) -> int:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxies", description=__doc__)
    parser.add_argument("--serve", metavar="PORT", help="be the remote: a port, or stdio")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=200, help="calls of one measurement")
    options = parser.parse_args(arguments)
    if options.serve:
        serve(None if options.serve == "stdio" else int(options.serve))
        return 0
    with project():
        print(asyncio.run(run(options.rounds, options.calls)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
