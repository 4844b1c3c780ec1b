"""Throttling: rates counted in Django's cache, shared by all workers.

    wait = throttling.count("REGISTRATION", address)  # counts one; None, or the seconds to wait

`check_address_rate` and its siblings apply `MCP["RATES"]` before authentication and before a call.

The window slides: the count of the previous whole window weighs less the longer ago it ended. So a client cannot get
twice the rate around the edge of a window; at most 1.5 times the rate fits into any period of its length. Refused
requests are not counted, so a client that waits for `Retry-After` is served.

Counts are exact where the cache increments atomically (Redis, Memcached, local memory). The database and file caches
may admit a few more concurrent requests. While the cache is down everything is allowed, and a log record is written
once a minute. Only registration is refused, because it is open to anonymous clients and each request adds a row.
"""

import logging
import math
from collections.abc import Callable
from functools import cache, partial
from hashlib import blake2b
from time import time
from typing import Any, Final, Literal

from django.core.cache import caches
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache

from mcp_django import conf
from mcp_django.auth.principal import Run
from mcp_django.auth.requests import UNKNOWN_ADDRESS, AuthRequest, get_client_address
from mcp_django.logs.records import RateLimitedLogger
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.ports import Executor, Overloaded
from mcp_django.server.primitives.base import Rate

logger = get_logger("mcp_django.auth")

TOO_MANY_REQUESTS_STATUS = 429
MIN_WAIT_SECONDS = 1.0
"""Minimum wait in seconds, because `Retry-After` has whole seconds."""
FAIL_CLOSED_RATES: Final[frozenset[str]] = frozenset({"REGISTRATION"})
"""Rates that refuse requests while the cache cannot count."""

RateName = Literal["PRINCIPAL", "ADDRESS", "TOKEN_FAILURES", "REGISTRATION"]


class CountingFailed(Exception):
    """Failure to count: the cache is down, or does not store values."""


class RateCounter:
    """Rate counters in the cache of an alias of CACHES.

    `clock` returns seconds since the epoch.
    """

    def __init__(self, alias: str = "default", *, clock: Callable[[], float] = time) -> None:
        self._alias = alias
        self._clock = clock
        self._failure_logger = RateLimitedLogger(logger)

    def count(
        self, name: str, key: str, rate: Rate, times: int = 1, *, dry_run: bool = False, fail_closed: bool = False
    ) -> float | None:
        """Count `times` events of `key` under `name`, if the rate allows them.

        Return None if it does. Otherwise return the seconds to wait; nothing is counted. With `dry_run` nothing is
        counted in either case. While the cache does not count, every event is allowed, or none if `fail_closed`. May
        block.
        """
        try:
            return self._count(name, key, rate, times, dry_run=dry_run)
        except Exception as problem:  # each cache has exceptions of its own
            text = "Rate counting in the cache %r failed; rates are not enforced: %r"
            self._failure_logger.log(logging.ERROR, text, self._alias, problem)
            return float(min(60, rate.seconds)) if fail_closed else None

    async def run(self, operation: Callable[[], float | None], run: Run) -> float | None:
        """Return the result of `operation`, which counts.

        `run` calls it in a thread, unless the cache is in this process and does not block.
        """
        if isinstance(caches[self._alias], LocMemCache | DummyCache):
            return operation()
        wait: float | None = await run(operation)
        return wait

    def _count(self, name: str, key: str, rate: Rate, times: int, *, dry_run: bool) -> float | None:
        store, now = caches[self._alias], self._clock()
        window, elapsed = divmod(now, rate.seconds)
        current_key, previous_key = _window_keys(name, key, rate, int(window))

        if dry_run:
            counts = store.get_many([current_key, previous_key])
            counted, earlier = _to_count(counts.get(current_key)) + times, _to_count(counts.get(previous_key))
        else:
            earlier = _to_count(store.get(previous_key))
            counted = _increment(store, current_key, rate, times)

        if counted + earlier * (1 - elapsed / rate.seconds) <= rate.times:
            return None
        if not dry_run:
            store.decr(current_key, times)
        return _compute_wait(rate, counted - times, earlier, elapsed, times)


def _increment(store: Any, key: str, rate: Rate, times: int) -> int:
    try:
        return int(store.incr(key, times))
    except ValueError:
        # The entry must live until the next window no longer reads it.
        store.add(key, 0, timeout=2 * rate.seconds + 1)
        try:
            return int(store.incr(key, times))
        except ValueError:
            raise CountingFailed("it does not store values") from None


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


def get_rate(name: RateName) -> Rate | None:
    """Return the rate of that name in `MCP["RATES"]`, or None."""
    rate: Rate | None = getattr(conf.get_settings().rates, name.lower())
    return rate


def get_counter() -> RateCounter:
    """Return the counter for the cache that the settings name."""
    return _get_counter(conf.get_settings().rates.cache)


_get_counter = cache(RateCounter)


def count(name: RateName, key: str, *, times: int = 1, dry_run: bool = False) -> float | None:
    """Count `times` events of `key`. Return None, or the seconds to wait. May block.

    With `dry_run` nothing is counted.
    """
    rate, fail_closed = get_rate(name), name in FAIL_CLOSED_RATES
    if rate is None:
        return None
    return get_counter().count(name, key, rate, times, dry_run=dry_run, fail_closed=fail_closed)


async def check_address_rate(request: AuthRequest, executor: Executor) -> None:
    """Count a request from an address.

    Raises:
        Overloaded: the rate is exceeded; with the status 429.
    """
    if conf.get_settings().rates.address is not None:
        _check_wait(await _count_for_address("ADDRESS", request, executor), "Too many requests")


async def check_principal_rate(principal: Any, raw: Any, executor: Executor) -> None:
    """Count the messages of a principal, before they are parsed further.

    A batch counts as many messages as it holds.

    Raises:
        Overloaded: the rate is exceeded; with the status 429.
    """
    if conf.get_settings().rates.principal is not None and not principal.is_local:
        times = max(1, len(raw)) if type(raw) is list else 1
        _check_wait(await _count_async("PRINCIPAL", principal.key, executor, times=times), "Too many requests")


async def check_failure_rate(request: AuthRequest, executor: Executor) -> None:
    """Check that an address may present a credential that is not cached as valid.

    Raises:
        Overloaded: too many credentials of the address were invalid; with the status 429.
    """
    wait = await _count_for_address("TOKEN_FAILURES", request, executor, dry_run=True)
    _check_wait(wait, "Too many invalid credentials from this address")


async def count_failure(request: AuthRequest, executor: Executor) -> None:
    """Count an invalid credential from an address."""
    await _count_for_address("TOKEN_FAILURES", request, executor)


async def _count_for_address(
    name: RateName, request: AuthRequest, executor: Executor, *, dry_run: bool = False
) -> float | None:
    if get_rate(name) is None:
        return None
    address = get_client_address(request.peer, request.headers)
    # Behind unconfigured proxies all clients have the same address.
    if address == UNKNOWN_ADDRESS:
        return None
    return await _count_async(name, address, executor, dry_run=dry_run)


async def _count_async(
    name: RateName, key: str, executor: Executor, *, times: int = 1, dry_run: bool = False
) -> float | None:
    with executor.context():
        return await get_counter().run(partial(count, name, key, times=times, dry_run=dry_run), executor.run)


def _check_wait(wait: float | None, text: str) -> None:
    if wait is not None:
        seconds = math.ceil(wait)
        raise Overloaded(f"{text}; wait {seconds} seconds", retry_after=seconds, status=TOO_MANY_REQUESTS_STATUS)
