"""The bare cost of a WebSocket: `benchmarks.servers.echo [uvicorn|daphne]`.

`/bare` is an ASGI application that echoes each message. `/channels` is a consumer of Channels that echoes each message,
and `/json` one that decodes and encodes it as JSON, both in the routing of Channels. env: PORT.
"""

import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})

from channels.generic.websocket import AsyncJsonWebsocketConsumer, AsyncWebsocketConsumer  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.urls import path  # noqa: E402

from benchmarks.serve import SERVERS  # noqa: E402

Message = MutableMapping[str, Any]


async def bare(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Echo messages without Channels."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


class Echo(AsyncWebsocketConsumer):  # type: ignore[misc]
    """A consumer that echoes text, as in Channels' tutorial."""

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await self.send(text_data=text_data)


class JsonEcho(AsyncJsonWebsocketConsumer):  # type: ignore[misc]
    """A consumer that decodes each message, and encodes it again."""

    async def receive_json(self, content: Any, **_: Any) -> None:
        await self.send_json(content)


ROUTES: dict[str, Any] = {"bare": bare, "channels": Echo.as_asgi(), "json": JsonEcho.as_asgi()}
app = ProtocolTypeRouter({"websocket": URLRouter([path(name, consumer) for name, consumer in ROUTES.items()])})

if __name__ == "__main__":
    SERVERS[sys.argv[1] if len(sys.argv) > 1 else "uvicorn"](app, int(os.environ["PORT"]))
