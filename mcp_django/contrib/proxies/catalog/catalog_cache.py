"""Cache of the lists of a remote server for one credential.

A list is fetched on demand, once for all waiting callers. It stays fresh for the time that the server states (`ttlMs`),
else for a minute, or until the server reports a change.

A caller waits a limited time for the server. If the server fails or is slow, the last list is served for a limited
time, then an empty one. Callers do not wait twice for the same slow fetch.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

from mcp_django.aio.clock import monotonic
from mcp_django.client.errors import AuthorizationNeeded, ClientError
from mcp_django.protocol import jsonrpc
from mcp_django.server.primitives.base import Primitive

logger = logging.getLogger("mcp_django.client")

HOLDS = 60.0
"""Seconds that a list stays fresh if the server states no time."""
LEAST, MOST = 1.0, 3600.0
"""Minimum and maximum seconds that a list stays fresh, whatever the server states."""
RETRY = 5.0
"""Seconds without retries after a failure."""
HASTE = 5
"""Maximum number of immediate refreshes in a row after reported changes.

Afterwards the list is fetched every `MIN_TTL_SECONDS`, however often the server reports changes.
"""
BRIEFLY = 1.0
"""Seconds to wait for a list if an older one is available."""


class Fetched(NamedTuple):
    """Fetched entries of a list, with the seconds of freshness that the server stated."""

    entries: list[Any]
    ttl: float | None


Fetch = Callable[[str], Awaitable[Fetched]]
Make = Callable[[str, Any], Primitive | None]


class _List:
    """Cached state of one list: tools, resources, templates or prompts."""

    __slots__ = (
        *("began_at", "by_key", "digest", "haste", "holds_until", "items", "known_at", "marked", "retry_at", "task"),
        "tired",
    )

    def __init__(self) -> None:
        self.items: tuple[Any, ...] = ()
        self.by_key: dict[str, Any] = {}
        self.digest: str | None = None
        self.known_at: float | None = None
        self.holds_until = self.retry_at = self.began_at = 0.0
        self.haste = 0
        """Number of refreshes in a row that followed shortly after the previous one."""
        self.task: asyncio.Task[None] | None = None
        self.tired = False
        """True if a caller has waited for the running fetch until its timeout."""
        self.marked = False
        """True if the list changed during the running fetch."""


class Nothing:
    """Empty catalog of a caller without a credential."""

    def __init__(self, needs: AuthorizationNeeded | None) -> None:
        self.needs = needs

    async def items(self, kind: str) -> tuple[Any, ...]:
        return ()

    async def find(self, kind: str, key: str) -> None:
        return None

    def is_known(self, kind: str) -> bool:
        return False

    def forget(self, kinds: Iterable[str]) -> None:
        return None


class Shelf:
    """Lists of one remote server for one credential, on one event loop."""

    def __init__(
        self, name: str, fetch: Fetch, make: Make, *, wait: float, stale: float, changed: Callable[[], None]
    ) -> None:
        """Create an empty cache.

        Callers wait `timeout` seconds for a list. An older list is served for `stale_ttl` seconds. `on_change` is
        called when a list has changed.
        """
        self._name, self._fetch, self._make, self._changed = name, fetch, make, changed
        self._wait, self._stale = wait, stale
        self._lists: dict[str, _List] = {}
        self.needs: AuthorizationNeeded | None = None
        """Error that requires the user to authorize the server first; None otherwise."""
        self.used = monotonic()
        """Time of the last use of a list."""

    async def items(self, kind: str) -> tuple[Any, ...]:
        """Return the primitives of a list; the identical tuple until the list changes."""
        return (await self._known(kind)).items

    async def find(self, kind: str, key: str) -> Any:
        """Return the primitive with this key; None if it does not exist."""
        return (await self._known(kind)).by_key.get(key)

    def is_known(self, kind: str) -> bool:
        """Return True if the list was fetched and is not too old."""
        found = self._lists.get(kind)
        return found is not None and found.known_at is not None

    def forget(self, kinds: Iterable[str]) -> None:
        """Invalidate these lists after a change, and fetch them again."""
        for kind in kinds:
            found = self._lists.get(kind)
            if found is not None:
                found.holds_until = found.retry_at = 0.0
                found.marked = True
                self._begin(kind, found)

    def look(self, kinds: Iterable[str]) -> None:
        """Start to refresh those of these lists that have expired."""
        for kind in kinds:
            found = self._lists.setdefault(kind, _List())
            now = monotonic()
            if now >= found.holds_until and now >= found.retry_at:
                self._begin(kind, found)

    def digests(self, kinds: Iterable[str]) -> tuple[str, ...] | None:
        """Return digests of these lists, equal in all processes, or None.

        None while one of the lists is unknown.
        """
        found = [self._lists[kind].digest if kind in self._lists else None for kind in kinds]
        known = [digest for digest in found if digest is not None]
        return tuple(known) if len(known) == len(found) else None

    def close(self) -> None:
        """Cancel all running fetches."""
        for found in self._lists.values():
            found.marked = False
            if found.task is not None:
                found.task.cancel()

    async def _known(self, kind: str) -> _List:
        found = self._lists.get(kind)
        if found is None:
            found = self._lists[kind] = _List()
        now = self.used = monotonic()
        if now < found.holds_until:
            return found
        if now >= found.retry_at:
            self._begin(kind, found)

        task = found.task
        if task is not None and not found.tired:
            await asyncio.wait({task}, timeout=self._wait if found.known_at is None else min(self._wait, BRIEFLY))
            found.tired = not task.done()

        if found.known_at is not None and monotonic() > found.known_at + self._stale and found.holds_until < now:
            self._put(found, (), "")
            found.known_at = None
        return found

    def _begin(self, kind: str, found: _List) -> None:
        if found.task is None:
            found.tired = found.marked = False
            loop = asyncio.get_running_loop()
            # The fetch serves all callers, so it must not run in the context of one call.
            found.task = loop.create_task(self._refresh(kind, found), context=contextvars.Context())

    async def _refresh(self, kind: str, found: _List) -> None:
        try:
            found.haste = found.haste + 1 if monotonic() < found.began_at + LEAST else 0
            if found.haste > HASTE:
                await asyncio.sleep(LEAST)
            found.began_at = monotonic()
            fetched = await self._fetch(kind)
        except AuthorizationNeeded as problem:
            self.needs = problem
            found.retry_at = monotonic() + RETRY
            self._put(found, (), "")
        except (ClientError, OSError) as problem:
            found.retry_at = monotonic() + RETRY
            logger.warning("Listing the %s of the server %r failed: %s", kind, self._name, type(problem).__name__)
        except Exception:
            found.retry_at = monotonic() + RETRY
            logger.exception("Listing the %s of the server %r failed", kind, self._name)
        else:
            self.needs = None
            self._take(kind, found, fetched)
        finally:
            # For clients, a list that could not be fetched is empty.
            found.digest = found.digest or ""
            found.task = None
            if found.marked:
                self._begin(kind, found)

    def _take(self, kind: str, found: _List, fetched: Fetched) -> None:
        made: dict[str, Primitive] = {}
        for entry in fetched.entries:
            item = self._make(kind, entry)
            if item is not None:
                made.setdefault(item.key, item)
        found.known_at = monotonic()
        found.holds_until = found.known_at + (HOLDS if fetched.ttl is None else min(max(fetched.ttl, LEAST), MOST))
        wire = [item.wire for item in made.values()]
        self._put(found, tuple(made.values()), blake2b(jsonrpc.dumps_sorted(wire), digest_size=12).hexdigest())

    def _put(self, found: _List, items: tuple[Any, ...], digest: str) -> None:
        if digest == found.digest:
            return  # keep the tuple: lists are encoded once per tuple
        before, found.digest = found.digest, digest
        found.items, found.by_key = items, {item.key: item for item in items}
        if before is not None:
            self._changed()
