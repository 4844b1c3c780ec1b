"""The transports that clients of these tests use, and the marks that name the transports of a test."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from tests.interaction.wire import App

if TYPE_CHECKING:
    from tests.interaction.channel import Channel
    from tests.interaction.clients import Client

HTTP = ("asgi", "view")
"""Streamable HTTP: the ASGI application beside Django, and Django's view."""
CHANNELS = ("websocket", "sse", "stdio")
"""Transports on which a client keeps a connection. `sse` is HTTP+SSE, which has the handshake era only."""
TRANSPORTS = (*HTTP, *CHANNELS)

contract = pytest.mark.transports(*TRANSPORTS)
"""Every transport has to fulfil it."""
contract_with_headers = pytest.mark.transports("asgi", "view", "websocket", "sse")
"""Every transport has to fulfil it whose requests have headers and a URL."""
on_http = pytest.mark.transports(*HTTP)
"""The ASGI application and the view have to fulfil it, each with code of its own."""


class Transport:
    """One way into the servers: an ASGI application and where the endpoints are in it.

    The application is made at the first request, so that settings of the test count.
    """

    name = "asgi"
    """One of `TRANSPORTS`."""
    http = True
    """Is every message a request of its own?"""
    has_headers = True
    """Has at least the opening of a channel headers?"""

    def __init__(self, make: Callable[[], App], prefix: str = "") -> None:
        self._make, self.prefix = make, prefix
        self._app: App | None = None

    @property
    def app(self) -> App:
        if self._app is None:
            self._app = self._make()
        return self._app

    def restart(self) -> None:
        """The next request reaches an application that knows nothing of the ones before."""
        self._app = None

    def path(self, server: str) -> str:
        return f"{self.prefix}/mcp/{server}"

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test on a loop of its own, where plain functions have a thread. Its clients hang up at the end."""
        asyncio.run(self.run_to_end(test))

    async def run_to_end(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test on the running loop. Its clients hang up at the end."""
        await test


class ChannelTransport(Transport):
    """A way in for clients that keep a channel. Each of them has its own."""

    http = False

    def __init__(
        self,
        make_channel: "Callable[[Transport, Client], Channel]",
        make: Callable[[], App],
        *,
        prefix: str = "",
        has_headers: bool = True,
    ) -> None:
        super().__init__(make, prefix)
        self.has_headers = has_headers
        self._make_channel = make_channel
        self._channels: list[Channel] = []

    def restart(self) -> None:
        """All clients lose their channels, and open others that know nothing of the ones before."""
        super().restart()
        for channel in self._channels:
            channel.stale = True

    def open_channel(self, client: "Client") -> "Channel":
        """A new channel for a client."""
        self._channels.append(self._make_channel(self, client))
        return self._channels[-1]

    async def run_to_end(self, test: Coroutine[Any, Any, None]) -> None:
        try:
            await super().run_to_end(test)
        except BaseException:
            await self.hang_up()
            raise
        await self.close()

    async def hang_up(self) -> "list[Channel]":
        """All clients hang up."""
        channels, self._channels = self._channels, []
        for channel in channels:
            await channel.hang_up()
        return channels

    async def close(self) -> None:
        """Close all clients. An unread message fails the test, and so does an exception of the server."""
        channels = await self.hang_up()
        left = [message for channel in channels for message in channel.left()]
        assert not left, f"sent without a request: {left}"
