"""Proxies between processes and a server, each of which a test may cut or stall."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, TypeVar

from mcp_django.aio.tasks import start_task
from tests.support.waiting import WAIT_SECONDS

T = TypeVar("T")
PIECE_BYTES = 1 << 16


class ProxyState(StrEnum):
    """Behaviours of a proxy."""

    OPEN = "open"
    CUT = "cut"
    """Connections are reset, and so is each new one."""
    STALLED = "stalled"
    """Nothing passes; bytes that arrive are passed on later."""
    DEAF = "deaf"
    """The server gets the bytes of the client, and its answers wait."""


class Proxy:
    """A proxy on a free port. Thread-safe."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._loop = loop
        self._server_port = port
        self._state = ProxyState.OPEN
        self._changed = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = self._run(asyncio.start_server(self._forward, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])

    def set_state(self, state: ProxyState, *, resets: bool = False) -> None:
        """Change the behaviour now. With `resets` the present connections end."""
        self._run(self._set_state(state, resets or state is ProxyState.CUT))

    def close(self) -> None:
        """End all connections, and accept no more of them."""
        self._run(self._close())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _set_state(self, state: ProxyState, resets: bool) -> None:
        if resets:
            for writer in tuple(self._writers):
                reset(writer)
        self._state = state
        async with self._changed:
            self._changed.notify_all()

    async def _close(self) -> None:
        self._server.close()
        await self._set_state(ProxyState.OPEN, resets=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        server_writer = None
        try:
            if self._state is ProxyState.CUT:
                return
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            self._writers.add(server_writer)
            pumps = [
                start_task(self._pump(reader, server_writer, self._passes_statements)),
                start_task(self._pump(server_reader, writer, self._passes_answers)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
        except OSError:  # the server is away
            pass
        finally:
            for each in (writer, server_writer):
                if each is not None:
                    self._writers.discard(each)
                    reset(each)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[], bool]
    ) -> None:
        try:
            while data := await reader.read(PIECE_BYTES):
                async with self._changed:
                    await self._changed.wait_for(passes)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass

    def _passes_statements(self) -> bool:
        return self._state in (ProxyState.OPEN, ProxyState.DEAF)

    def _passes_answers(self) -> bool:
        return self._state is ProxyState.OPEN


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST, as a firewall does, and not with FIN."""
    connection = writer.get_extra_info("socket")
    if not writer.transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class ProxyLoop:
    """An event loop in a thread, which runs proxies."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._proxies: list[Proxy] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def open(self, port: int) -> Proxy:
        """Open a proxy of a port of 127.0.0.1."""
        proxy = Proxy(self._loop, port)
        self._proxies.append(proxy)
        return proxy

    def close(self) -> None:
        """End all proxies with their connections."""
        for proxy in self._proxies:
            proxy.close()
        asyncio.run_coroutine_threadsafe(self._wait_for_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _wait_for_tasks(self) -> None:
        if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks, timeout=WAIT_SECONDS)
