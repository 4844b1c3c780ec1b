"""WebSocket connections to real sockets: their messages, and how they end."""

import asyncio
import base64
import hashlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.transports import websocket
from mcp_django.client.transports.targets import WebSocket
from mcp_django.client.transports.websocket import SocketClosed
from tests.client.listeners import listening
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS

Handler = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def peer(handler: Handler, **options: Any) -> AsyncIterator[str]:
    """Start a server, and yield its URL."""
    async with serve(handler, "127.0.0.1", 0, **{"subprotocols": ["mcp"], **options}) as server:
        (socket,) = server.sockets
        yield f"ws://127.0.0.1:{socket.getsockname()[1]}/ws"


async def echo(socket: ServerConnection) -> None:
    async for frame in socket:
        await socket.send(frame)


def request(**params: Any) -> SessionMessage:
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="echo", params=params))


async def end(reader: Any) -> SocketClosed:
    """Return why the connection ended; no message may come before."""
    item = await reader.receive()
    with pytest.raises(anyio.EndOfStream):
        await reader.receive()
    assert isinstance(item, SocketClosed), item
    return item


async def refusal(target: WebSocket) -> SocketClosed:
    """Return why a socket did not open."""
    with pytest.raises(SocketClosed) as refused:
        async with target.open():
            pass
    return refused.value


async def test_messages_go_both_ways_in_text_frames() -> None:
    frames: list[Any] = []

    async def noting(socket: ServerConnection) -> None:
        async for frame in socket:
            frames.append(frame)
            await socket.send(frame)

    async with peer(noting) as url, WebSocket(url).open() as (reader, writer):
        for text in ("plain", "two\nlines", "é 漢 🦉", "x" * 300_000):
            await writer.send(request(text=text))
            async with asyncio.timeout(WAIT_SECONDS):
                assert (await reader.receive()).message == request(text=text).message
    assert all(isinstance(frame, str) for frame in frames)


async def test_frames_that_are_no_messages_are_left_out() -> None:
    async def rubbish(socket: ServerConnection) -> None:
        for frame in ("", "hello", "[]", "{}", b"\xff\x00", '{"jsonrpc": "1.0", "id": 1}'):
            await socket.send(frame)
        await echo(socket)

    async with peer(rubbish) as url, WebSocket(url).open() as (reader, writer):
        await writer.send(request())
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await reader.receive()).message == request().message


async def test_the_handshake_has_headers_and_a_ticket_of_its_own() -> None:
    seen: list[tuple[str, str]] = []
    numbers = itertools.count(1)

    async def ticket() -> str:
        return f"t/{next(numbers)}"

    async def note(socket: ServerConnection) -> None:
        assert socket.request is not None
        seen.append((socket.request.path, socket.request.headers["Authorization"]))
        await echo(socket)

    async with peer(note) as url:
        target = WebSocket(f"{url}?tenant=a", headers={"Authorization": "Bearer x"}, ticket=ticket)
        for _ in range(2):
            async with target.open() as (reader, writer):
                await writer.send(request())
                await reader.receive()
    assert seen == [("/ws?tenant=a&ticket=t%2F1", "Bearer x"), ("/ws?tenant=a&ticket=t%2F2", "Bearer x")]


async def test_a_server_without_the_subprotocol_is_refused() -> None:
    async with peer(echo, subprotocols=None) as url:
        assert "did not select the subprotocol 'mcp'" in str(await refusal(WebSocket(url)))
    async with peer(echo, select_subprotocol=lambda *_: "other") as url:
        assert "selected a subprotocol other than" in str(await refusal(WebSocket(url)))


async def test_a_refused_handshake_is_reported_by_its_status(subtests: pytest.Subtests) -> None:
    for status, said in [
        (401, "a valid credential is required"),
        (403, "access is denied"),
        (503, "refused the WebSocket handshake"),
    ]:
        with subtests.test(status=status, said=said):

            def refuse(connection: ServerConnection, _: Request, status: int = status) -> Response:
                return connection.respond(HTTPStatus(status), "secret words of the server")

            async with peer(echo, process_request=refuse) as url:
                refused = await refusal(WebSocket(url))
            assert refused.status == status
            assert f"answered HTTP {status}" in str(refused)
            assert said in str(refused)
            assert "secret words" not in str(refused)


async def test_a_redirect_is_not_followed() -> None:
    opened: list[ServerConnection] = []

    async def elsewhere(socket: ServerConnection) -> None:
        opened.append(socket)

    async with peer(elsewhere) as other:

        def redirect(*_: Any) -> Response:
            return Response(302, "Found", Headers(Location=other))

        async with peer(echo, process_request=redirect) as url:
            assert (await refusal(WebSocket(url, headers={"Authorization": "Bearer x"}))).status == 302
    assert not opened


async def test_close_codes_are_described_in_words(subtests: pytest.Subtests) -> None:
    for code, said in [
        (1000, "normal closure"),
        (1001, "the server shuts down"),
        (4001, "the server shuts down"),
        (1008, "policy violation"),
        (1009, "a message was too large"),
        (4009, "a message was too large"),
        (1013, "the server is overloaded"),
        (4401, "the credential is invalid"),
        (4403, "insufficient permissions"),
        (4404, "the session has ended"),
        (4999, "no known reason"),
    ]:
        with subtests.test(code=code, said=said):

            async def close(socket: ServerConnection, code: int = code) -> None:
                await socket.close(code, "private words")

            async with peer(close) as url, WebSocket(url).open() as (reader, writer):
                ended = await end(reader)
                assert ended.code == code
                assert said in str(ended)
                assert "private words" not in str(ended)
                with pytest.raises(anyio.BrokenResourceError):
                    await writer.send(request())


async def test_an_aborted_connection_has_ended() -> None:
    async def cut(socket: ServerConnection) -> None:
        socket.transport.abort()

    async with peer(cut) as url, WebSocket(url).open() as (reader, _):
        ended = await end(reader)
    assert (ended.code, "was lost" in str(ended)) == (1006, True)


async def test_a_message_larger_than_allowed_ends_the_connection() -> None:
    async def much(socket: ServerConnection) -> None:
        await socket.send("x" * 2000)
        await socket.wait_closed()

    async with peer(much) as url, WebSocket(url, max_message_size=1000).open() as (reader, _):
        ended = await end(reader)
    assert ended.code == 1009
    assert "a message of more than 1000 bytes" in str(ended)


async def test_a_server_that_answers_no_pings_is_disconnected(clock: Clock) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Accept: {accept.decode()}", "Sec-WebSocket-Protocol: mcp", "", ""]
        writer.write("\r\n".join(lines).encode())
        while await reader.read(1000):
            pass

    async with listening(deaf) as port:
        target = WebSocket(f"ws://127.0.0.1:{port}/", ping_interval=20, ping_timeout=20)
        async with target.open() as (reader, _):
            ending = asyncio.create_task(end(reader))
            await clock.advance(40 + websocket.CLOSE_TIMEOUT_SECONDS)
            ended = await ending
    assert "stopped answering pings" in str(ended)


async def test_a_server_that_does_not_answer_the_handshake_is_a_timeout(clock: Clock) -> None:
    reached = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        reached.set()
        await reader.read()

    async with listening(silent) as port:
        opening = asyncio.create_task(refusal(WebSocket(f"ws://127.0.0.1:{port}/", open_timeout=10)))
        await reached.wait()
        await clock.advance(10)
        refused = await opening
    assert "did not complete the handshake within 10 seconds" in str(refused)


async def test_an_unreachable_server_is_reported_without_secrets_of_its_url() -> None:
    refused = await refusal(WebSocket("ws://user:password@127.0.0.1:9/ws?token=secret", environment_proxies=False))
    assert str(refused).startswith("The server could not be reached: ")
    assert "127.0.0.1:9/" not in str(refused)
    assert isinstance(refused, ClientConnectionError)


async def test_the_exit_closes_the_socket_also_when_cancelled() -> None:
    closed: asyncio.Queue[int | None] = asyncio.Queue()

    async def note(socket: ServerConnection) -> None:
        await socket.wait_closed()
        closed.put_nowait(socket.close_code)

    async with peer(note) as url:
        async with WebSocket(url).open():
            pass
        opened = asyncio.Event()

        async def use() -> None:
            async with WebSocket(url).open() as (reader, _):
                opened.set()
                await reader.receive()

        task = asyncio.create_task(use())
        await opened.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(WAIT_SECONDS):
            assert [await closed.get(), await closed.get()] == [1000, 1000]
