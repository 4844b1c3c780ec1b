"""State of a proxy on one event loop."""

import asyncio
import contextvars
import weakref
from collections.abc import Callable
from functools import partial

from mcp_django.aio.clock import monotonic
from mcp_django.client import Client
from mcp_django.contrib.proxies.catalog.catalog_cache import Shelf
from mcp_django.contrib.proxies.connections.credentials import Credential
from mcp_django.contrib.proxies.connections.sessions import Askable, Sessions
from mcp_django.contrib.proxies.connections.targets import Source
from mcp_django.contrib.proxies.forwarding.forwarding import Relay, pass_log
from mcp_django.contrib.proxies.forwarding.suspended_calls import Desk
from mcp_django.contrib.proxies.options import ProxyOptions
from mcp_django.contrib.proxies.upstream import Upstream

CLIENTS = 200
"""Maximum number of connections with headers of a caller."""
UNUSED = 600.0
"""Seconds without use after which a connection can be evicted."""
FOLLOWING = 200
"""Maximum number of credentials with upstream subscriptions."""


class Here:
    """Catalogs, connections and suspended calls of a proxy on one event loop."""

    def __init__(self, source: Source, options: ProxyOptions) -> None:
        self._source = source
        self.shelves: dict[tuple[tuple[str, str], Askable], Shelf] = {}
        """Catalogs by owner of the lists and by capabilities of the caller."""
        self._clients: dict[tuple[str, str], tuple[Client, float]] = {}
        """Connections with a caller's headers and last use, least recently used first."""
        self._closing: set[asyncio.Task[None]] = set()
        self._upstreams: dict[tuple[str, str], Upstream] = {}
        self.followed: weakref.WeakSet[Client] = weakref.WeakSet()
        self.desk = Desk(options.parked, options.parked_seconds)
        self.sessions = Sessions(source.name, options.sessions, pass_log, make_room=self.desk.give_way)
        self.relay = Relay(source.name, self.sessions, self.desk, options.timeout)

    def client(self, who: Credential) -> Client:
        """Return the connection with a caller's headers, for requests without a session."""
        found, _ = self._clients.pop(who.lists, (None, 0.0))
        if found is None:
            self._make_room()
            found = self._source.own(None, who.headers, {}, False)
        self._clients[who.lists] = found, monotonic()
        return found

    def upstream(self, who: Credential, client: Callable[[], Client]) -> Upstream | None:
        """Return the upstream subscriptions of a credential; None if there are too many.

        `client` returns the connection to use.
        """
        found = self._upstreams.get(who.lists)
        if found is None and len(self._upstreams) < FOLLOWING:
            found = Upstream(self._source.name, client, partial(self._end_upstream, who.lists))
            self._upstreams[who.lists] = found
        return found

    def _end_upstream(self, key: tuple[str, str]) -> None:
        del self._upstreams[key]

    def _make_room(self) -> None:
        old = monotonic() - UNUSED
        while self._clients:
            key, (client, used) = next(iter(self._clients.items()))
            if len(self._clients) < CLIENTS and used > old:
                return
            del self._clients[key]
            task = asyncio.get_running_loop().create_task(client.close(), context=contextvars.Context())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections at the end of the loop."""
        for shelf in self.shelves.values():
            shelf.close()
        for upstream in list(self._upstreams.values()):
            await upstream.close()
        await self.desk.close()
        await self.sessions.close()
        await asyncio.gather(self._source.close(), *self._closing, *(one.close() for one, _ in self._clients.values()))
