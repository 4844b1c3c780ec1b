"""Lists of a remote server as primitives.

There is one catalog for each event loop, credential of a caller, and set of the caller's capabilities.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from hashlib import blake2b
from typing import Any

from mcp_django.client import AuthorizationNeeded, Client, ClientError
from mcp_django.contrib.proxies.catalog.catalog_cache import CatalogCache, EmptyCatalog, FetchedList
from mcp_django.contrib.proxies.catalog.lists import AFFECTED_LISTS, LIST_METHODS, fetch_list, keep_listed_pages
from mcp_django.contrib.proxies.catalog.remote_skills import fetch_skills, join_skills
from mcp_django.contrib.proxies.connections.credentials import CallerCredentials, RemoteCredential
from mcp_django.contrib.proxies.connections.sessions import (
    NO_CAPABILITIES,
    CallerCapabilities,
    RemoteSession,
    omit_unused,
)
from mcp_django.contrib.proxies.loop_state import LoopState
from mcp_django.contrib.proxies.options import ProxyOptions
from mcp_django.extensions.calls import Context
from mcp_django.extensions.errors import ToolError
from mcp_django.extensions.event_loop import LoopLocal, monotonic

MAX_CATALOGS = 1000
"""Maximum number of catalogs on one event loop, each for one credential."""
CATALOG_IDLE_SECONDS = 900.0
"""Seconds without use after which a catalog stops being checked for changes."""

Catalog = CatalogCache | EmptyCatalog


class RemoteCatalogs:
    """Cached lists of the remote server of a proxy, by credential."""

    def __init__(
        self,
        name: str,
        options: ProxyOptions,
        credentials: CallerCredentials,
        states: LoopLocal[LoopState],
        build: Callable[[str, Any], Any],
    ) -> None:
        """Create an empty collection.

        `build` returns the primitive of an entry of a list, or None for an entry that is not served.
        """
        self.kinds = [kind for kind, (_, _, capability) in LIST_METHODS.items() if capability in options.features]
        """The lists that are served."""
        self._name = name
        self._options = options
        self._credentials = credentials
        self._states = states
        self._build = build
        self._change_mark = ""

    @property
    def version(self) -> Hashable:
        """Digests of the lists.

        If the lists depend on the caller, a digest that counts the changes in this process.
        """
        if self._credentials.is_personal:
            return self._change_mark
        catalogs = [item for _, state in self._states.items() for item in list(state.catalogs.items())]
        shared_catalogs = [catalog for (_, capabilities), catalog in catalogs if capabilities == NO_CAPABILITIES]
        return next(
            (digests for catalog in shared_catalogs if (digests := catalog.get_digests(self.kinds)) is not None),
            None,
        )

    async def find(self, ctx: Context, capabilities: CallerCapabilities = NO_CAPABILITIES) -> Catalog:
        """Return the lists that the caller sees.

        Many servers list tools that send requests only to clients that support these requests.
        """
        try:
            return self._get(self._states.get(), await self._credentials.get(ctx), capabilities)
        except ClientError as problem:
            return EmptyCatalog(problem if isinstance(problem, AuthorizationNeeded) else None)

    def refresh(self) -> None:
        """Fetch the expired lists that are in use."""
        state = self._states.get()
        is_personal = self._credentials.is_personal
        if not is_personal:
            self._get(state, RemoteCredential("", "", ""), NO_CAPABILITIES).refresh_expired(self.kinds)
        oldest_use = monotonic() - CATALOG_IDLE_SECONDS
        for (_, capabilities), catalog in list(state.catalogs.items()):
            if is_personal and catalog.used_at > oldest_use:
                catalog.refresh_expired(self.kinds if capabilities == NO_CAPABILITIES else ["tools"])

    def invalidate(self, credential: RemoteCredential, kinds: Iterable[str] | None = None) -> None:
        """Invalidate these lists, or all, for all callers who share the credential."""
        self._invalidate(self._states.get(), credential, self.kinds if kinds is None else kinds)

    def _invalidate(self, state: LoopState, credential: RemoteCredential, kinds: Iterable[str]) -> None:
        for (list_key, _), catalog in list(state.catalogs.items()):
            if list_key == credential.list_key:
                catalog.invalidate(kinds)

    def _get(self, state: LoopState, credential: RemoteCredential, capabilities: CallerCapabilities) -> CatalogCache:
        catalog = state.catalogs.get((credential.list_key, capabilities))
        if catalog is None:
            if len(state.catalogs) >= MAX_CATALOGS:
                _evict_oldest(state)
            catalog = state.catalogs[credential.list_key, capabilities] = CatalogCache(
                self._name,
                partial(self._fetch, state, credential, capabilities),
                self._build,
                timeout=self._options.list_timeout,
                stale_ttl=self._options.stale_ttl,
                on_change=partial(self._record_change, state, credential, capabilities),
            )
        return catalog

    def _record_change(self, state: LoopState, credential: RemoteCredential, capabilities: CallerCapabilities) -> None:
        if capabilities == NO_CAPABILITIES:
            # Clients are notified of changes in the common lists. A list requested then must not be older.
            for (list_key, catalog_capabilities), catalog in list(state.catalogs.items()):
                if list_key == credential.list_key and catalog_capabilities != capabilities:
                    catalog.invalidate(["tools"])
        self._change_mark = blake2b(self._change_mark.encode(), digest_size=8, key=b"changed").hexdigest()

    async def _fetch(
        self, state: LoopState, credential: RemoteCredential, capabilities: CallerCapabilities, kind: str
    ) -> FetchedList:
        client = state.get_client(credential)
        await client.connect()
        self._watch_lists(state, credential, client)
        capabilities = omit_unused(capabilities, client)
        timeout = self._options.list_timeout * 2
        session = await _acquire_spare_session(state, credential, capabilities) if capabilities.requests else None

        if session is None:
            fetched = await _fetch_list(client, kind, timeout)
            if kind == "resources":
                fetched = fetched._replace(entries=join_skills(fetched.entries, await fetch_skills(client, timeout)))
            # Prefer a list without the tools that send requests, for a moment, to an empty one.
            return fetched._replace(ttl=0.0) if capabilities.requests else fetched

        broken = True
        try:
            fetched = await _fetch_list(session.client, kind, timeout)
            broken = False
            return fetched
        finally:
            state.sessions.release(session, broken=broken)

    def _watch_lists(self, state: LoopState, credential: RemoteCredential, client: Client) -> None:
        """Invalidate lists when the remote server reports their change."""
        if client not in state.watched_clients:
            state.watched_clients.add(client)
            client.on_list_changed(lambda kind: self._invalidate(state, credential, AFFECTED_LISTS.get(kind, ())))


def _evict_oldest(state: LoopState) -> None:
    """Close the catalog that was not used for the longest time."""
    state.catalogs.pop(min(state.catalogs, key=lambda key: state.catalogs[key].used_at)).close()


async def _fetch_list(client: Client, kind: str, timeout: float) -> FetchedList:
    fetched = await fetch_list(client, kind, timeout)
    return await keep_listed_pages(client, fetched, timeout) if kind == "tools" else fetched


async def _acquire_spare_session(
    state: LoopState, credential: RemoteCredential, capabilities: CallerCapabilities
) -> RemoteSession | None:
    """Return a session without waiting for one; None if all are in use."""
    if state.sessions.is_exhausted:
        return None
    try:
        return await state.acquire_session(credential, capabilities)
    except (ClientError, ToolError):
        return None
