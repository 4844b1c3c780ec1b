"""Counting in Django's cache, so that all workers count together.

The window slides: what was counted in the last whole window weighs less the longer ago it ended, so that nobody gets
twice the rate around its edge; half as much again is the most that fits into any time of its length. What is refused is
not counted: who waits as long as they are told to is served then.

Counts are exact where the cache adds atomically, as Redis, Memcached and the local one do; the cache in the database
and that in files may let a few more through when several ask at the same moment.
"""

import logging
import threading
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from time import time
from typing import Any

from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache

from mcp_django.aio.clock import monotonic
from mcp_django.server.rates import Rate

logger = logging.getLogger("mcp_django.auth")

COMPLAIN_EVERY = 60.0
"""Seconds between two complaints about a cache that does not count."""
LEAST = 1.0
"""Seconds that anybody is told to wait at least, since `Retry-After` knows whole ones."""

Run = Callable[..., Awaitable[Any]]


class CannotCount(Exception):
    """The cache is down, or keeps nothing."""


async def in_thread(fn: Callable[..., Any], /, *args: Any) -> Any:
    return await sync_to_async(fn)(*args)


class Counter:
    """Counts who did what how often, in the cache of an alias of CACHES. `clock` gives seconds since the epoch."""

    def __init__(self, alias: str = "default", *, clock: Callable[[], float] = time) -> None:
        self._alias, self._clock = alias, clock
        self._quiet_until = 0.0
        self._complaining = threading.Lock()

    def take(self, name: str, key: str, rate: Rate, times: int = 1, *, closed: bool = False) -> float | None:
        """Count `times` more of what is called `name` by `key`, if the rate allows that.

        None when it does, else the seconds to wait, and nothing is counted. While the cache does not count, everything
        is allowed, or nothing where `closed` says so. May block.
        """
        return self._asked(lambda: self._take(name, key, rate, times), rate, closed)

    def wait(self, name: str, key: str, rate: Rate, *, closed: bool = False) -> float | None:
        """What `take` would say to one more; nothing is counted. May block."""
        return self._asked(lambda: self._look(name, key, rate), rate, closed)

    async def atake(
        self, name: str, key: str, rate: Rate, times: int = 1, *, closed: bool = False, run: Run = in_thread
    ) -> float | None:
        """`take` for async code; `run` calls what may block."""
        if self._is_here():
            return self.take(name, key, rate, times, closed=closed)
        found: float | None = await run(lambda: self.take(name, key, rate, times, closed=closed))
        return found

    async def look(
        self, name: str, key: str, rate: Rate, *, closed: bool = False, run: Run = in_thread
    ) -> float | None:
        """`wait` for async code; `run` calls what may block."""
        if self._is_here():
            return self.wait(name, key, rate, closed=closed)
        found: float | None = await run(lambda: self.wait(name, key, rate, closed=closed))
        return found

    def _is_here(self) -> bool:
        """Is the cache in this process, so that nothing is waited for?"""
        return isinstance(caches[self._alias], LocMemCache | DummyCache)

    def _asked(self, ask: Callable[[], float | None], rate: Rate, closed: bool) -> float | None:
        try:
            return ask()
        except Exception as problem:  # each cache has errors of its own
            with self._complaining:
                now = monotonic()
                if now >= self._quiet_until:
                    self._quiet_until = now + COMPLAIN_EVERY
                    logger.error("The cache %r does not count, so rates do not hold: %r", self._alias, problem)
            return float(min(60, rate.seconds)) if closed else None

    def _take(self, name: str, key: str, rate: Rate, times: int) -> float | None:
        cache, now = caches[self._alias], self._clock()
        window, elapsed = divmod(now, rate.seconds)
        here, before = _places(name, key, rate, int(window))
        earlier = _count(cache.get(before))
        try:
            counted = cache.incr(here, times)
        except ValueError:
            # Kept for as long as the window after this one looks back at it.
            cache.add(here, 0, timeout=2 * rate.seconds + 1)
            try:
                counted = cache.incr(here, times)
            except ValueError:
                raise CannotCount("it keeps nothing") from None
        if counted + earlier * (1 - elapsed / rate.seconds) <= rate.times:
            return None
        cache.decr(here, times)
        return _seconds(rate, counted - times, earlier, elapsed, times)

    def _look(self, name: str, key: str, rate: Rate) -> float | None:
        cache = caches[self._alias]
        window, elapsed = divmod(self._clock(), rate.seconds)
        here, before = _places(name, key, rate, int(window))
        found = cache.get_many([here, before])
        counted, earlier = _count(found.get(here)), _count(found.get(before))
        if counted + 1 + earlier * (1 - elapsed / rate.seconds) <= rate.times:
            return None
        return _seconds(rate, counted, earlier, elapsed, 1)


def _places(name: str, key: str, rate: Rate, window: int) -> tuple[str, str]:
    """The keys of this window and of the one before it. Digests, because keys are long, private or chosen by others."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    what = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    stem = f"mcp_django.rate:{what}:{digest}:{rate.times}.{rate.seconds}"
    return f"{stem}:{window}", f"{stem}:{window - 1}"


def _count(found: Any) -> int:
    return max(0, found) if isinstance(found, int) else 0


def _seconds(rate: Rate, counted: int, earlier: int, elapsed: float, times: int) -> float:
    """When `times` more will be allowed, if nothing else is counted meanwhile."""
    room = rate.times - counted - times
    if room >= 0 and earlier > 0:
        wait = rate.seconds * (1 - room / earlier) - elapsed
    else:
        rest, room = rate.seconds - elapsed, max(0, rate.times - times)
        wait = rest + (rate.seconds * (1 - room / counted) if counted > room else 0)
    return max(LEAST, wait)
