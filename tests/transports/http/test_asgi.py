"""Edge cases of the ASGI transport: differences between servers, and hostile clients."""

import asyncio
import json
import tracemalloc
from typing import Any

import pytest
from django.core.asgi import get_asgi_application

from mcp_django import Context, Server
from mcp_django.asgi import mount
from mcp_django.transports.http.asgi import StreamableHTTPApp
from mcp_django.transports.http.handler import StreamableHTTPEndpoint, get_http_endpoint
from mcp_django.transports.http.messages import MAX_CACHED_HEADER_BYTES, is_json_content_type, parse_accept
from mcp_django.transports.services import build_services
from mcp_django.wiring import get_ports
from tests.interaction.clients import META, STATELESS

PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()


@pytest.fixture(autouse=True)
def _open(settings: Any, db: None) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    settings.MCP = {"AUTH": "none"}


def scope(**headers: str) -> dict[str, Any]:
    fields = {"host": "localhost", "content-type": "application/json", "accept": "*/*", **headers}
    return {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()],
        "client": ("127.0.0.1", 1),
    }


async def post(parts: Any, send: Any = None, **headers: str) -> list[dict[str, Any]]:
    """Send a body in these parts; return the messages of the transport."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        part = next(parts, None)
        return {"type": "http.request", "body": b" " if part is None else part, "more_body": part is not None}

    async def keep(message: dict[str, Any]) -> None:
        sent.append(message)

    await StreamableHTTPApp(get_http_endpoint())(scope(**headers), receive, send or keep)
    return sent


async def test_a_disconnect_before_the_response_is_not_an_error() -> None:
    async def send(message: dict[str, Any]) -> None:
        raise ConnectionResetError("the socket is closed")

    await post(iter([PING]), send)


async def test_a_server_that_fails_to_send_ends_the_call() -> None:
    server, cancelled = Server("failing"), asyncio.Event()

    @server.tool
    async def speak(ctx: Context) -> None:
        try:
            await ctx.notify("notifications/hello")
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    about = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}}
    params = {"name": "speak", "arguments": {}, "_meta": about}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    gone = asyncio.Event()
    parts = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        if not parts:
            await gone.wait()
        return parts.pop()

    async def send(message: dict[str, Any]) -> None:
        raise RuntimeError("the handler is closed")  # the error of uvloop

    routing = {"mcp_protocol_version": STATELESS, "mcp_method": "tools/call", "mcp_name": "speak"}
    endpoint = StreamableHTTPEndpoint(build_services(server.bind(get_ports("failing"))))
    with pytest.raises(RuntimeError, match="handler is closed"):
        await StreamableHTTPApp(endpoint)(scope(**routing), receive, send)
    await cancelled.wait()


async def test_a_body_received_byte_by_byte_needs_no_more_memory() -> None:
    size = 500_000

    def parts() -> Any:
        yield PING
        for _ in range(size // 2):
            yield bytearray(b"  ")  # an object of its own, as servers make them

    await post(iter([PING]))  # warm up the caches
    tracemalloc.start()
    try:
        (start, _) = await post(parts())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert start["status"] == 200
    assert peak < 20 * size, "orjson takes twelve times as much for a moment"


async def test_long_headers_are_read_and_not_cached(subtests: pytest.Subtests) -> None:
    for name in ["accept", "content-type"]:
        with subtests.test(name=name):
            cached = parse_accept if name == "accept" else is_json_content_type
            cached.cache_clear()
            value = "application/json;x=" + "x" * MAX_CACHED_HEADER_BYTES
            for surplus in range(300):
                start, _ = await post(iter([PING]), **{name: value + "y" * surplus})
                assert start["status"] == 200
            assert cached.cache_info().currsize <= 1


def test_change_logs_without_a_user_are_a_warning(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "crum.CurrentRequestUserMiddleware"]
    around = ["contextlib.nullcontext"]
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {"AROUND": around}, "staff": {}}}
    mount(get_asgi_application())
    assert "servers=staff middleware=crum.CurrentRequestUserMiddleware" in caplog.text

    caplog.clear()
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {"AROUND": around}, "staff": {"AROUND": around}}}
    mount(get_asgi_application())
    settings.MIDDLEWARE, settings.MCP = ["django.middleware.common.CommonMiddleware"], {"AUTH": "none"}
    mount(get_asgi_application())
    assert "Changes may be logged without a user" not in caplog.text
