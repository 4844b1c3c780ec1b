"""Cache of the lists of a remote server for one credential.

A list is fetched on demand, once for all waiting callers. It stays fresh for the time that the server states (`ttlMs`),
else for a minute, or until the server reports a change.

A list waits a limited time for the server, and a call as long as connecting may take. If the server fails or is slow,
the last list is served for a limited time, then an empty one. Callers do not wait twice for the same slow fetch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from mcp_django.client import AuthorizationNeeded, ClientError
from mcp_django.extensions.calls import get_logger, jsonrpc
from mcp_django.extensions.event_loop import monotonic, start_task
from mcp_django.extensions.primitives import Primitive
from mcp_django.protocol.skills import MANIFEST_KEY

logger = get_logger("mcp_django.client")

DEFAULT_TTL_SECONDS = 60.0
"""Seconds that a list stays fresh if the server states no time."""
MIN_TTL_SECONDS, MAX_TTL_SECONDS = 1.0, 3600.0
"""Minimum and maximum seconds that a list stays fresh, whatever the server states."""
RETRY_DELAY_SECONDS = 5.0
"""Seconds without retries after a failure."""
MAX_RAPID_REFRESHES = 5
"""Maximum number of immediate refreshes in a row after reported changes.

Afterwards the list is fetched every `MIN_TTL_SECONDS`, however often the server reports changes.
"""
STALE_WAIT_SECONDS = 1.0
"""Seconds to wait for a list if an older one is available."""


class FetchedList(NamedTuple):
    """Fetched entries of a list, with the seconds of freshness that the server stated."""

    entries: list[Any]
    ttl: float | None


FetchList = Callable[[str], Awaitable[FetchedList]]
BuildComponent = Callable[[str, Any], Primitive | None]


@dataclass(slots=True, eq=False)
class _CachedList:
    """Cached state of one list: tools, resources, templates or prompts."""

    items: tuple[Any, ...] = ()
    by_key: dict[str, Any] = field(default_factory=dict)
    digest: str | None = None
    fetched_at: float | None = None
    fresh_until: float = 0.0
    retry_at: float = 0.0
    refresh_started_at: float = 0.0
    rapid_refreshes: int = 0
    """Number of refreshes in a row that followed shortly after the previous one."""
    task: asyncio.Task[None] | None = None
    has_timed_out: bool = False
    """True if a caller has waited for the running fetch until its timeout."""
    is_outdated: bool = False
    """True if the list changed during the running fetch."""


@dataclass(frozen=True, slots=True, eq=False)
class EmptyCatalog:
    """Empty catalog of a caller without a credential."""

    authorization_needed: AuthorizationNeeded | None

    async def items(self, kind: str) -> tuple[Any, ...]:
        return ()

    async def find(self, kind: str, key: str) -> None:
        return None

    def is_known(self, kind: str) -> bool:
        return False

    def is_loading(self, kind: str) -> bool:
        return False

    async def wait_until_known(self, kind: str, timeout: float) -> bool:
        return False


class CatalogCache:
    """Lists of one remote server for one credential, on one event loop."""

    def __init__(
        self,
        name: str,
        fetch: FetchList,
        build: BuildComponent,
        *,
        timeout: float,
        stale_ttl: float,
        on_change: Callable[[], None],
    ) -> None:
        """Create an empty cache.

        Callers wait `timeout` seconds for a list. An older list is served for `stale_ttl` seconds. `on_change` is
        called when a list has changed.
        """
        self._name = name
        self._fetch = fetch
        self._build = build
        self._on_change = on_change
        self._timeout = timeout
        self._stale_ttl = stale_ttl
        self._lists: dict[str, _CachedList] = {}
        self.authorization_needed: AuthorizationNeeded | None = None
        """Error that requires the user to authorize the server first; None otherwise."""
        self.used_at = monotonic()
        """Time of the last use of a list."""

    async def items(self, kind: str) -> tuple[Any, ...]:
        """Return the primitives of a list; the identical tuple until the list changes."""
        return (await self._get_list(kind)).items

    async def find(self, kind: str, key: str) -> Any:
        """Return the primitive with this key; None if it does not exist."""
        return (await self._get_list(kind)).by_key.get(key)

    def is_known(self, kind: str) -> bool:
        """Return True if the list was fetched and is not too old."""
        cached = self._lists.get(kind)
        return cached is not None and cached.fetched_at is not None

    def is_loading(self, kind: str) -> bool:
        """Return True if the list is being fetched for the first time."""
        cached = self._lists.get(kind)
        return cached is not None and cached.fetched_at is None and cached.task is not None

    async def wait_until_known(self, kind: str, timeout: float) -> bool:
        """Wait for the first fetch of a list; return True if the list is known then.

        `timeout` counts from the start of the fetch, so that callers do not wait for it one after the other.
        """
        cached = self._lists.get(kind)
        if cached is not None and cached.task is not None and cached.fetched_at is None:
            seconds = cached.refresh_started_at + timeout - monotonic()
            await asyncio.wait({cached.task}, timeout=max(0.0, seconds))
        return self.is_known(kind)

    def invalidate(self, kinds: Iterable[str]) -> None:
        """Invalidate these lists after a change, and fetch them again."""
        for kind in kinds:
            cached = self._lists.get(kind)
            if cached is not None:
                cached.fresh_until = cached.retry_at = 0.0
                cached.is_outdated = True
                self._start_refresh(kind, cached)

    def refresh_expired(self, kinds: Iterable[str]) -> None:
        """Start to refresh those of these lists that have expired."""
        for kind in kinds:
            cached = self._lists.setdefault(kind, _CachedList())
            now = monotonic()
            if now >= cached.fresh_until and now >= cached.retry_at:
                self._start_refresh(kind, cached)

    def get_digests(self, kinds: Iterable[str]) -> tuple[str, ...] | None:
        """Return digests of these lists, equal in all processes, or None.

        None while one of the lists is unknown.
        """
        digests = [self._lists[kind].digest if kind in self._lists else None for kind in kinds]
        known = [digest for digest in digests if digest is not None]
        return tuple(known) if len(known) == len(digests) else None

    def close(self) -> None:
        """Cancel all running fetches."""
        for cached in self._lists.values():
            cached.is_outdated = False
            if cached.task is not None:
                cached.task.cancel()

    async def _get_list(self, kind: str) -> _CachedList:
        cached = self._lists.setdefault(kind, _CachedList())
        now = self.used_at = monotonic()
        if now < cached.fresh_until:
            return cached
        if now >= cached.retry_at:
            self._start_refresh(kind, cached)

        task = cached.task
        if task is not None and not cached.has_timed_out:
            await asyncio.wait(
                {task}, timeout=self._timeout if cached.fetched_at is None else min(self._timeout, STALE_WAIT_SECONDS)
            )
            cached.has_timed_out = not task.done()

        if (
            cached.fetched_at is not None
            and monotonic() > cached.fetched_at + self._stale_ttl
            and cached.fresh_until < now
        ):
            self._replace(cached, (), "")
            cached.fetched_at = None
        return cached

    def _start_refresh(self, kind: str, cached: _CachedList) -> None:
        if cached.task is None:
            cached.has_timed_out = cached.is_outdated = False
            # The fetch serves all callers, so it must not run in the context of one call.
            cached.task = start_task(self._refresh(kind, cached))

    async def _refresh(self, kind: str, cached: _CachedList) -> None:
        try:
            cached.rapid_refreshes = (
                cached.rapid_refreshes + 1 if monotonic() < cached.refresh_started_at + MIN_TTL_SECONDS else 0
            )
            if cached.rapid_refreshes > MAX_RAPID_REFRESHES:
                await asyncio.sleep(MIN_TTL_SECONDS)
            cached.refresh_started_at = monotonic()
            fetched = await self._fetch(kind)
        except AuthorizationNeeded as problem:
            self.authorization_needed = problem
            cached.retry_at = monotonic() + RETRY_DELAY_SECONDS
            self._replace(cached, (), "")
        except (ClientError, OSError) as problem:
            cached.retry_at = monotonic() + RETRY_DELAY_SECONDS
            logger.warning("Listing the %s of the server %r failed: %s", kind, self._name, type(problem).__name__)
        except Exception:
            cached.retry_at = monotonic() + RETRY_DELAY_SECONDS
            logger.exception("Listing the %s of the server %r failed", kind, self._name)
        else:
            self.authorization_needed = None
            self._store(kind, cached, fetched)
        finally:
            # For clients, a list that could not be fetched is empty.
            cached.digest = cached.digest or ""
            cached.task = None
            if cached.is_outdated:
                self._start_refresh(kind, cached)

    def _store(self, kind: str, cached: _CachedList, fetched: FetchedList) -> None:
        components: dict[str, Primitive] = {}
        for entry in fetched.entries:
            item = self._build(kind, entry)
            if item is not None:
                components.setdefault(item.key, item)
        cached.fetched_at = monotonic()
        cached.fresh_until = cached.fetched_at + (
            DEFAULT_TTL_SECONDS if fetched.ttl is None else min(max(fetched.ttl, MIN_TTL_SECONDS), MAX_TTL_SECONDS)
        )
        # The manifest of a skill is no part of the entry of its resource.
        wire = [[item.wire, repr(item.metadata.get(MANIFEST_KEY))] for item in components.values()]
        self._replace(
            cached, tuple(components.values()), blake2b(jsonrpc.dumps_sorted(wire), digest_size=12).hexdigest()
        )

    def _replace(self, cached: _CachedList, items: tuple[Any, ...], digest: str) -> None:
        if digest == cached.digest:
            return  # keep the tuple: lists are encoded once per tuple
        before, cached.digest = cached.digest, digest
        cached.items, cached.by_key = items, {item.key: item for item in items}
        if before is not None:
            self._on_change()
