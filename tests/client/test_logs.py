"""Log lines about a connection, from any library and at any level, hold no secret."""

import json
import logging

import pytest
from websockets.asyncio.server import ServerConnection, serve

from mcp_django.client import Client
from mcp_django.client.errors import ClientError
from mcp_django.client.transports.targets import SSE, StreamableHTTP, WebSocket
from tests.client.listeners import Exchange, exchanges, listening
from tests.support.waiting import WAIT_SECONDS

HEADERS = {"Authorization": "Bearer hush-header"}


@pytest.fixture
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def join_log(caplog: pytest.LogCaptureFixture) -> str:
    """Join all log lines of the client, tracebacks included."""
    told = logging.Formatter()
    return "\n".join(told.format(record) for record in caplog.records if record.name != "websockets.server")


async def session(exchange: Exchange) -> None:
    if exchange.method != "POST":
        await exchange.answer(404)
    elif "id" not in exchange.message:
        await exchange.answer(202)
    else:
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        body = json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": result})
        await exchange.answer(200, body, content_type="application/json", mcp_session_id="hush-session")


@pytest.mark.usefixtures("_everything")
@pytest.mark.parametrize("kind", [StreamableHTTP, SSE])
async def test_over_http(kind: type[StreamableHTTP | SSE], caplog: pytest.LogCaptureFixture) -> None:
    async with listening(exchanges(session)) as port:
        url = f"http://someone:hush-password@127.0.0.1:{port}/mcp?key=hush-query"
        target = kind(url, headers=HEADERS, environment_proxies=False)
        try:
            async with Client(
                target, protocol_version="handshake", max_retries=0, startup_timeout=WAIT_SECONDS
            ) as client:
                await client.ping()
        except ClientError:
            assert kind is SSE
    text = join_log(caplog)
    assert f"http://127.0.0.1:{port}/mcp" in text
    assert "hush" not in text


@pytest.mark.usefixtures("_everything")
async def test_over_a_socket(caplog: pytest.LogCaptureFixture) -> None:
    async def echo(socket: ServerConnection) -> None:
        async for frame in socket:
            await socket.send(frame)

    async with serve(echo, "127.0.0.1", 0, subprotocols=["mcp"]) as server:  # type: ignore[list-item]
        port = server.sockets[0].getsockname()[1]
        async with WebSocket(f"ws://127.0.0.1:{port}/ws?key=hush-query", headers=HEADERS).open():
            pass
    assert "hush" not in join_log(caplog)
    assert "mcp_django.client.websocket.frames" in {record.name for record in caplog.records}
