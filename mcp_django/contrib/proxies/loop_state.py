"""State of a proxy on one event loop."""

import asyncio
import weakref
from functools import partial

from mcp_django.client import Client
from mcp_django.contrib.proxies.catalog.catalog_cache import CatalogCache
from mcp_django.contrib.proxies.connections.credentials import RemoteCredential
from mcp_django.contrib.proxies.connections.sessions import (
    CallerCapabilities,
    RemoteSession,
    RemoteSessionPool,
    SessionKey,
)
from mcp_django.contrib.proxies.connections.targets import RemoteSource
from mcp_django.contrib.proxies.forwarding.forwarding import RequestForwarder, forward_log
from mcp_django.contrib.proxies.forwarding.suspended_calls import SuspendedCalls
from mcp_django.contrib.proxies.options import ProxyOptions
from mcp_django.contrib.proxies.upstream import RemoteSubscriptions
from mcp_django.extensions.event_loop import BackgroundTasks, monotonic

MAX_CLIENTS = 200
"""Maximum number of connections with headers of a caller."""
CLIENT_IDLE_SECONDS = 600.0
"""Seconds without use after which a connection can be evicted."""
MAX_UPSTREAMS = 200
"""Maximum number of credentials with upstream subscriptions."""


class LoopState:
    """Catalogs, connections and suspended calls of a proxy on one event loop."""

    def __init__(self, source: RemoteSource, options: ProxyOptions) -> None:
        self._source = source
        self.catalogs: dict[tuple[tuple[str, str], CallerCapabilities], CatalogCache] = {}
        """Catalogs by owner of the lists and by capabilities of the caller."""
        self._clients: dict[tuple[str, str], tuple[Client, float]] = {}
        """Connections with a caller's headers and last use, least recently used first."""
        self._closing = BackgroundTasks()
        self._upstreams: dict[tuple[str, str], RemoteSubscriptions] = {}
        self.watched_clients: weakref.WeakSet[Client] = weakref.WeakSet()
        self.suspended_calls = SuspendedCalls(options.suspended_calls, options.suspended_call_ttl)
        self.sessions = RemoteSessionPool(
            source.name, options.sessions, forward_log, make_room=self.suspended_calls.evict_one
        )
        self.forwarder = RequestForwarder(source.name, self.sessions, self.suspended_calls, options.timeout)

    def get_client(self, credential: RemoteCredential) -> Client:
        """Return the shared connection for requests without a session of their own."""
        if credential.headers is None:
            return self._source.get_shared_client(credential.user)
        client, _ = self._clients.pop(credential.list_key, (None, 0.0))
        if client is None:
            self._evict_clients()
            client = self._source.create_client(None, credential.headers, {}, False)
        self._clients[credential.list_key] = client, monotonic()
        return client

    async def acquire_session(self, credential: RemoteCredential, capabilities: CallerCapabilities) -> RemoteSession:
        """Return a connected session for one call.

        Raises ClientError, or ToolError if too many calls use the server.
        """
        create_client = partial(self._source.create_client, credential.user, credential.headers)
        session = await self.sessions.acquire(SessionKey(credential.session_key, capabilities), create_client)
        try:
            await session.client.connect()
        except BaseException:
            self.sessions.release(session, broken=True)
            raise
        return session

    def get_upstream(self, credential: RemoteCredential) -> RemoteSubscriptions | None:
        """Return the upstream subscriptions of a credential; None if there are too many."""
        upstream = self._upstreams.get(credential.list_key)
        if upstream is None and len(self._upstreams) < MAX_UPSTREAMS:
            forget = partial(self._upstreams.pop, credential.list_key)
            upstream = self._upstreams[credential.list_key] = RemoteSubscriptions(
                self._source.name, partial(self.get_client, credential), forget
            )
        return upstream

    def _evict_clients(self) -> None:
        oldest_use = monotonic() - CLIENT_IDLE_SECONDS
        while self._clients:
            key, (client, used) = next(iter(self._clients.items()))
            if len(self._clients) < MAX_CLIENTS and used > oldest_use:
                return
            del self._clients[key]
            self._closing.spawn(client.close())

    async def close(self) -> None:
        """Close all connections at the end of the loop."""
        for catalog in self.catalogs.values():
            catalog.close()
        for upstream in list(self._upstreams.values()):
            await upstream.close()
        await self.suspended_calls.close()
        await self.sessions.close()
        await asyncio.gather(
            self._source.close(), *self._closing, *(client.close() for client, _ in self._clients.values())
        )
