"""What one event loop has of a proxy."""

import asyncio
import weakref

from ...client import Client
from .calls import Relay, pass_log
from .options import ProxyOptions
from .parking import Desk
from .sessions import Sessions
from .shelves import Shelf
from .sources import Source


class Here:
    """Its lists, connections, and calls that wait."""

    def __init__(self, source: Source, options: ProxyOptions) -> None:
        self._source = source
        self.shelves: dict[tuple[str, str], Shelf] = {}
        self.clients: dict[tuple[str, str], Client] = {}
        """Connections with headers of a caller's, for what needs no session of its own."""
        self.followed: weakref.WeakSet[Client] = weakref.WeakSet()
        self.sessions = Sessions(source.name, options.sessions, pass_log)
        self.desk = Desk(options.parked, options.parked_seconds)
        self.relay = Relay(source.name, self.sessions, self.desk, options.timeout)

    async def close(self) -> None:
        """The loop ends."""
        for shelf in self.shelves.values():
            shelf.close()
        await self.desk.close()
        await self.sessions.close()
        await asyncio.gather(self._source.close(), *(client.close() for client in self.clients.values()))
