"""Rate counters in Django's cache, shared by all workers.

The window slides: the count of the previous whole window weighs less the longer ago it ended. So a client cannot get
twice the rate around the edge of a window; at most 1.5 times the rate fits into any period of its length. Refused
requests are not counted, so a client that waits for `Retry-After` is served.

Counts are exact where the cache increments atomically (Redis, Memcached, local memory). The database and file caches
may admit a few more concurrent requests.
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
"""Seconds between two log records about a cache that does not count."""
LEAST = 1.0
"""Minimum wait in seconds, because `Retry-After` has whole seconds."""

Run = Callable[..., Awaitable[Any]]


class CannotCount(Exception):
    """Failure to count: the cache is down, or does not store values."""


async def in_thread(fn: Callable[..., Any], /, *args: Any) -> Any:
    return await sync_to_async(fn)(*args)


class Counter:
    """Rate counters in the cache of an alias of CACHES.

    `clock` returns seconds since the epoch.
    """

    def __init__(self, alias: str = "default", *, clock: Callable[[], float] = time) -> None:
        self._alias, self._clock = alias, clock
        self._quiet_until = 0.0
        self._complaining = threading.Lock()

    def take(self, name: str, key: str, rate: Rate, times: int = 1, *, closed: bool = False) -> float | None:
        """Count `times` events of `key` under `name`, if the rate allows them.

        Return None if it does. Otherwise return the seconds to wait; nothing is counted. While the cache does not
        count, every event is allowed, or none if `fail_closed`. May block.
        """
        return self._asked(lambda: self._take(name, key, rate, times), rate, closed)

    def wait(self, name: str, key: str, rate: Rate, *, closed: bool = False) -> float | None:
        """Return the result of `count` for one more event, without counting it. May block."""
        return self._asked(lambda: self._look(name, key, rate), rate, closed)

    async def atake(
        self, name: str, key: str, rate: Rate, times: int = 1, *, closed: bool = False, run: Run = in_thread
    ) -> float | None:
        """Run `count` in async code; `run` calls blocking functions."""
        if self._is_here():
            return self.take(name, key, rate, times, closed=closed)
        found: float | None = await run(lambda: self.take(name, key, rate, times, closed=closed))
        return found

    async def look(
        self, name: str, key: str, rate: Rate, *, closed: bool = False, run: Run = in_thread
    ) -> float | None:
        """Run `peek` in async code; `run` calls blocking functions."""
        if self._is_here():
            return self.wait(name, key, rate, closed=closed)
        found: float | None = await run(lambda: self.wait(name, key, rate, closed=closed))
        return found

    def _is_here(self) -> bool:
        """Return True if the cache is in this process, so that no call blocks."""
        return isinstance(caches[self._alias], LocMemCache | DummyCache)

    def _asked(self, ask: Callable[[], float | None], rate: Rate, closed: bool) -> float | None:
        try:
            return ask()
        except Exception as problem:  # each cache has exceptions of its own
            with self._complaining:
                now = monotonic()
                if now >= self._quiet_until:
                    self._quiet_until = now + COMPLAIN_EVERY
                    logger.error(
                        "Rate counting in the cache %r failed; rates are not enforced: %r", self._alias, problem
                    )
            return float(min(60, rate.seconds)) if closed else None

    def _take(self, name: str, key: str, rate: Rate, times: int) -> float | None:
        cache, now = caches[self._alias], self._clock()
        window, elapsed = divmod(now, rate.seconds)
        here, before = _places(name, key, rate, int(window))
        earlier = _count(cache.get(before))

        try:
            counted = cache.incr(here, times)
        except ValueError:
            # The entry must live until the next window no longer reads it.
            cache.add(here, 0, timeout=2 * rate.seconds + 1)
            try:
                counted = cache.incr(here, times)
            except ValueError:
                raise CannotCount("it does not store values") from None

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
    """Return the cache keys of the current and the previous window.

    They contain digests, because `key` may be long, private or chosen by a client.
    """
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    what = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    stem = f"mcp_django.rate:{what}:{digest}:{rate.times}.{rate.seconds}"
    return f"{stem}:{window}", f"{stem}:{window - 1}"


def _count(found: Any) -> int:
    return max(0, found) if isinstance(found, int) else 0


def _seconds(rate: Rate, counted: int, earlier: int, elapsed: float, times: int) -> float:
    """Return the seconds until `times` more events are allowed.

    Assumes that no others are counted until then.
    """
    room = rate.times - counted - times
    if room >= 0 and earlier > 0:
        wait = rate.seconds * (1 - room / earlier) - elapsed
    else:
        rest, room = rate.seconds - elapsed, max(0, rate.times - times)
        wait = rest + (rate.seconds * (1 - room / counted) if counted > room else 0)
    return max(LEAST, wait)
