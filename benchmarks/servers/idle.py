"""The bare cost of an open stream: an ASGI application with a queue for each.

A POST to `/listen` opens a stream, and a POST to `/publish` sends an event on each stream. env: PORT.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

Message = MutableMapping[str, Any]

SSE = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
OPENED = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}\n\n'
CHANGED = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
STREAMS: set[asyncio.Queue[bytes]] = set()


async def app(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Read the body without parsing it, and respond."""
    while (await receive()).get("more_body", False):
        pass
    if scope["path"] == "/publish":
        for queue in STREAMS:
            queue.put_nowait(CHANGED)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        return
    mine: asyncio.Queue[bytes] = asyncio.Queue()
    STREAMS.add(mine)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": SSE})
        await send({"type": "http.response.body", "body": OPENED, "more_body": True})
        while True:
            await send({"type": "http.response.body", "body": await mine.get(), "more_body": True})
    finally:
        STREAMS.discard(mine)


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
