"""The ways into the servers: HTTP through both of its doors, and the channels; and which tests are about which."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.interaction.wire import App

if TYPE_CHECKING:
    from tests.interaction.channel import Line
    from tests.interaction.clients import Client

HTTP = ("asgi", "view")
CHANNELS = ("websocket", "sse", "stdio")
DOORS = (*HTTP, *CHANNELS)


def over(*doors: str, reason: str) -> pytest.MarkDecorator:
    """These tests are about some doors alone, for a reason that README.md gives, too."""
    return pytest.mark.over(*doors, reason=reason)


def not_over_stdio(reason: str) -> pytest.MarkDecorator:
    """These tests are about what stdio lacks."""
    return over(*(door for door in DOORS if door != "stdio"), reason=reason)


def over_http(reason: str) -> pytest.MarkDecorator:
    """These tests are about HTTP, or about what HTTP alone has."""
    return over(*HTTP, reason=reason)


def over_channels(reason: str) -> pytest.MarkDecorator:
    """These tests are about what clients have that keep a channel."""
    return over(*CHANNELS, reason=reason)


class Door:
    """One way into the servers: an ASGI application and where the endpoints are in it.

    The application is made at the first request, so that settings of the test count.
    """

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


class ChannelDoor(Door):
    """A way in for clients that keep a channel. Each of them has its own."""

    http = False

    def __init__(
        self,
        line: "Callable[[Door, Client], Line]",
        make: Callable[[], App],
        *,
        prefix: str = "",
        has_headers: bool = True,
    ) -> None:
        super().__init__(make, prefix)
        self.has_headers = has_headers
        self._line = line
        self._lines: list[Line] = []

    def restart(self) -> None:
        """All clients lose their channels, and open others that know nothing of the ones before."""
        super().restart()
        for line in self._lines:
            line.stale = True

    def line(self, client: "Client") -> "Line":
        """A new channel for a client."""
        self._lines.append(self._line(self, client))
        return self._lines[-1]

    async def hang_up(self) -> "list[Line]":
        """All clients hang up."""
        lines, self._lines = self._lines, []
        for line in lines:
            await line.hang_up()
        return lines

    async def close(self) -> None:
        """All clients hang up. What came for none of them fails the test, and so does a server that fell over."""
        lines = await self.hang_up()
        left = [message for line in lines for message in line.left()]
        assert not left, f"nobody asked for {left}"
