"""Work after the answer, through the ASGI door: it begins when the last byte was sent."""

import asyncio
import json
from typing import Any

import pytest

from mcp_django import Context, Server
from mcp_django.transports.http.asgi import StreamableHTTPApp
from mcp_django.transports.http.handler import StreamableHTTPEndpoint
from mcp_django.transports.services import build_services
from mcp_django.wiring import get_ports, get_services
from tests.interaction.clients import META, STATELESS
from tests.transports.http.test_asgi import scope


@pytest.mark.parametrize("speaks", [False, True], ids=["one piece", "a stream"])
def test_background_jobs_start_after_the_last_byte(speaks: bool, settings: Any, db: None) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    settings.MCP = {"AUTH": "none"}
    log: list[str] = []

    async def main() -> None:
        server, done = Server("later"), asyncio.Event()

        async def later() -> None:
            log.append("work")
            done.set()

        @server.tool
        async def leave(ctx: Context) -> str:
            ctx.background(later)
            if speaks:
                await ctx.notify("notifications/hello")
            return "left"

        about = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}}
        params = {"name": "leave", "arguments": {}, "_meta": about}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        parts = [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            if not parts:
                await asyncio.Event().wait()
            return parts.pop()

        async def send(message: dict[str, Any]) -> None:
            await asyncio.sleep(0)  # as a socket that is not ready at once
            log.append("more" if message.get("more_body") else message["type"])

        routing = {"mcp_protocol_version": STATELESS, "mcp_method": "tools/call", "mcp_name": "leave"}
        endpoint = StreamableHTTPEndpoint(build_services(server.bind(get_ports("later"))))
        await StreamableHTTPApp(endpoint)(scope(**routing), receive, send)
        await done.wait()

    asyncio.run(main())
    assert log[-2:] == ["http.response.body", "work"]
    assert log[0] == "http.response.start"
    assert get_services().background_slots._acquired_count == 0
