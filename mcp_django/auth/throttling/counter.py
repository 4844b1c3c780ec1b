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

LOG_INTERVAL_SECONDS = 60.0
"""Seconds between two log records about a cache that does not count."""
MIN_WAIT_SECONDS = 1.0
"""Minimum wait in seconds, because `Retry-After` has whole seconds."""

Run = Callable[..., Awaitable[Any]]


class CountingFailed(Exception):
    """Failure to count: the cache is down, or does not store values."""


async def run_in_thread(fn: Callable[..., Any], /, *args: Any) -> Any:
    return await sync_to_async(fn)(*args)


class RateCounter:
    """Rate counters in the cache of an alias of CACHES.

    `clock` returns seconds since the epoch.
    """

    def __init__(self, alias: str = "default", *, clock: Callable[[], float] = time) -> None:
        self._alias = alias
        self._clock = clock
        self._next_log_at = 0.0
        self._log_lock = threading.Lock()

    def count(self, name: str, key: str, rate: Rate, times: int = 1, *, fail_closed: bool = False) -> float | None:
        """Count `times` events of `key` under `name`, if the rate allows them.

        Return None if it does. Otherwise return the seconds to wait; nothing is counted. While the cache does not
        count, every event is allowed, or none if `fail_closed`. May block.
        """
        return self._call_cache(lambda: self._count_in_cache(name, key, rate, times), rate, fail_closed)

    def peek(self, name: str, key: str, rate: Rate, *, fail_closed: bool = False) -> float | None:
        """Return the result of `count` for one more event, without counting it. May block."""
        return self._call_cache(lambda: self._peek_in_cache(name, key, rate), rate, fail_closed)

    async def acount(
        self, name: str, key: str, rate: Rate, times: int = 1, *, fail_closed: bool = False, run: Run = run_in_thread
    ) -> float | None:
        """Run `count` in async code; `run` calls blocking functions."""
        if self._is_in_process():
            return self.count(name, key, rate, times, fail_closed=fail_closed)
        seconds: float | None = await run(lambda: self.count(name, key, rate, times, fail_closed=fail_closed))
        return seconds

    async def apeek(
        self, name: str, key: str, rate: Rate, *, fail_closed: bool = False, run: Run = run_in_thread
    ) -> float | None:
        """Run `peek` in async code; `run` calls blocking functions."""
        if self._is_in_process():
            return self.peek(name, key, rate, fail_closed=fail_closed)
        seconds: float | None = await run(lambda: self.peek(name, key, rate, fail_closed=fail_closed))
        return seconds

    def _is_in_process(self) -> bool:
        """Return True if the cache is in this process, so that no call blocks."""
        return isinstance(caches[self._alias], LocMemCache | DummyCache)

    def _call_cache(self, operation: Callable[[], float | None], rate: Rate, fail_closed: bool) -> float | None:
        try:
            return operation()
        except Exception as problem:  # each cache has exceptions of its own
            with self._log_lock:
                now = monotonic()
                if now >= self._next_log_at:
                    self._next_log_at = now + LOG_INTERVAL_SECONDS
                    logger.error(
                        "Rate counting in the cache %r failed; rates are not enforced: %r", self._alias, problem
                    )
            return float(min(60, rate.seconds)) if fail_closed else None

    def _count_in_cache(self, name: str, key: str, rate: Rate, times: int) -> float | None:
        cache, now = caches[self._alias], self._clock()
        window, elapsed = divmod(now, rate.seconds)
        current_key, previous_key = _window_keys(name, key, rate, int(window))
        earlier = _to_count(cache.get(previous_key))

        try:
            counted = cache.incr(current_key, times)
        except ValueError:
            # The entry must live until the next window no longer reads it.
            cache.add(current_key, 0, timeout=2 * rate.seconds + 1)
            try:
                counted = cache.incr(current_key, times)
            except ValueError:
                raise CountingFailed("it does not store values") from None

        if counted + earlier * (1 - elapsed / rate.seconds) <= rate.times:
            return None
        cache.decr(current_key, times)
        return _compute_wait(rate, counted - times, earlier, elapsed, times)

    def _peek_in_cache(self, name: str, key: str, rate: Rate) -> float | None:
        cache = caches[self._alias]
        window, elapsed = divmod(self._clock(), rate.seconds)
        current_key, previous_key = _window_keys(name, key, rate, int(window))

        counts = cache.get_many([current_key, previous_key])
        counted, earlier = _to_count(counts.get(current_key)), _to_count(counts.get(previous_key))
        if counted + 1 + earlier * (1 - elapsed / rate.seconds) <= rate.times:
            return None
        return _compute_wait(rate, counted, earlier, elapsed, 1)


def _window_keys(name: str, key: str, rate: Rate, window: int) -> tuple[str, str]:
    """Return the cache keys of the current and the previous window.

    They contain digests, because `key` may be long, private or chosen by a client.
    """
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    name_digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    stem = f"mcp_django.rate:{name_digest}:{digest}:{rate.times}.{rate.seconds}"
    return f"{stem}:{window}", f"{stem}:{window - 1}"


def _to_count(value: Any) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _compute_wait(rate: Rate, counted: int, earlier: int, elapsed: float, times: int) -> float:
    """Return the seconds until `times` more events are allowed.

    Assumes that no others are counted until then.
    """
    room = rate.times - counted - times
    if room >= 0 and earlier > 0:
        wait = rate.seconds * (1 - room / earlier) - elapsed
    else:
        rest, room = rate.seconds - elapsed, max(0, rate.times - times)
        wait = rest + (rate.seconds * (1 - room / counted) if counted > room else 0)
    return max(MIN_WAIT_SECONDS, wait)
