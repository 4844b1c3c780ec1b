"""What one remote lists to one credential: fetched when somebody wants it, kept while it holds, asked for by all at
once.

A list holds for as long as the remote says (`ttlMs`), a minute where it does not say, or until it says that the list
has changed. Who wants a list waits a bounded time for the remote. While that is down or slow, its last known list
stands in, for a bounded time; then it lists nothing. Nobody waits twice for the same silence.
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
"""Seconds that a list holds of which the remote does not say."""
LEAST, MOST = 1.0, 3600.0
"""Seconds that a list holds, whatever the remote says."""
RETRY = 5.0
"""Seconds after a failure in which nobody tries again."""
HASTE = 5
"""How often in succession a list is fetched anew at once, because the remote says that it has changed; then it is
fetched every LEAST seconds, however often the remote says so.
"""
BRIEFLY = 1.0
"""Seconds to wait for a list when an older one is at hand."""


class Fetched(NamedTuple):
    """A list, and for how many seconds it holds by the remote's own word."""

    entries: list[Any]
    ttl: float | None


Fetch = Callable[[str], Awaitable[Fetched]]
Make = Callable[[str, Any], Primitive | None]


class _List:
    """One list: tools, resources, templates or prompts."""

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
        """How often in succession it was fetched soon after it was fetched."""
        self.task: asyncio.Task[None] | None = None
        self.tired = False
        """Has somebody waited for the task in vain?"""
        self.marked = False
        """Did it change while it was being fetched?"""


class Nothing:
    """The lists of a caller who has no credential."""

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
    """The lists of one remote as one credential sees them, on one event loop."""

    def __init__(
        self, name: str, fetch: Fetch, make: Make, *, wait: float, stale: float, changed: Callable[[], None]
    ) -> None:
        """`wait` seconds somebody waits for a list; `stale` seconds an older one stands in for it. `changed` is called
        when a list has become another.
        """
        self._name, self._fetch, self._make, self._changed = name, fetch, make, changed
        self._wait, self._stale = wait, stale
        self._lists: dict[str, _List] = {}
        self.needs: AuthorizationNeeded | None = None
        """Why nothing can be listed before somebody allows it."""
        self.used = monotonic()
        """When somebody last wanted one of the lists."""

    async def items(self, kind: str) -> tuple[Any, ...]:
        """The primitives of one list; the very same tuple as long as the remote lists the same."""
        return (await self._known(kind)).items

    async def find(self, kind: str, key: str) -> Any:
        """The primitive with this key; None when there is none."""
        return (await self._known(kind)).by_key.get(key)

    def is_known(self, kind: str) -> bool:
        """Has the remote said what it lists, lately enough?"""
        found = self._lists.get(kind)
        return found is not None and found.known_at is not None

    def forget(self, kinds: Iterable[str]) -> None:
        """The remote says that these lists have changed: fetch them anew."""
        for kind in kinds:
            found = self._lists.get(kind)
            if found is not None:
                found.holds_until = found.retry_at = 0.0
                found.marked = True
                self._begin(kind, found)

    def look(self, kinds: Iterable[str]) -> None:
        """Fetch those of these lists that do not hold any more, without waiting for them."""
        for kind in kinds:
            found = self._lists.setdefault(kind, _List())
            now = monotonic()
            if now >= found.holds_until and now >= found.retry_at:
                self._begin(kind, found)

    def digests(self, kinds: Iterable[str]) -> tuple[str, ...] | None:
        """What tells these lists from others, the same in every process; None while one of them is not known."""
        found = [self._lists[kind].digest if kind in self._lists else None for kind in kinds]
        known = [digest for digest in found if digest is not None]
        return tuple(known) if len(known) == len(found) else None

    def close(self) -> None:
        """Nobody wants them any more."""
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
            # Everybody's: it belongs to no call.
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
            logger.warning("The %s of the server %r cannot be listed now: %s", kind, self._name, type(problem).__name__)
        except Exception:
            found.retry_at = monotonic() + RETRY
            logger.exception("The %s of the server %r cannot be listed", kind, self._name)
        else:
            self.needs = None
            self._take(kind, found, fetched)
        finally:
            # What could not be fetched is nothing, as far as clients have been told.
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
            return  # the tuple that is kept: lists are encoded once for each
        before, found.digest = found.digest, digest
        found.items, found.by_key = items, {item.key: item for item in items}
        if before is not None:
            self._changed()
