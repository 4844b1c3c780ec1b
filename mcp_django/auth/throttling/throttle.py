"""Throttles of `MCP["RATES"]`, by rate name and a key such as a client's address.

    wait = throttle.count("REGISTRATION", address)  # counts one; None, or the seconds to wait
    wait = throttle.peek("TOKEN_FAILURES", address)  # counts nothing

While the cache is down everything is allowed, and a log record is written once a minute. Only registration is refused,
because it is open to anonymous clients and each request adds a row.
"""

from typing import Final, Literal

from mcp_django import conf
from mcp_django.auth.throttling.counter import Counter, Run, in_thread
from mcp_django.server.rates import Rate

Name = Literal["PRINCIPAL", "ADDRESS", "TOKEN_FAILURES", "REGISTRATION"]

CLOSED: Final[frozenset[str]] = frozenset({"REGISTRATION"})
"""Rates that refuse requests while the cache cannot count."""

_counters: dict[str, Counter] = {}


def rate_of(name: Name) -> Rate | None:
    """Return the rate of that name in `MCP["RATES"]`, or None."""
    rates = conf.get_settings().rates
    match name:
        case "PRINCIPAL":
            return rates.principal
        case "ADDRESS":
            return rates.address
        case "TOKEN_FAILURES":
            return rates.token_failures
        case "REGISTRATION":
            return rates.registration


def counter() -> Counter:
    """Return the counter for the cache that the settings name."""
    alias = conf.get_settings().rates.cache
    found = _counters.get(alias)
    if found is None:
        found = _counters[alias] = Counter(alias)
    return found


def allow(name: Name, key: str, *, times: int = 1) -> float | None:
    """Count `times` events of `key`. Return None, or the seconds to wait. May block."""
    rate = rate_of(name)
    return None if rate is None else counter().take(name, key, rate, times, closed=name in CLOSED)


def wait(name: Name, key: str) -> float | None:
    """Return the result of `count` for one more event, without counting it. May block."""
    rate = rate_of(name)
    return None if rate is None else counter().wait(name, key, rate, closed=name in CLOSED)


async def aallow(name: Name, key: str, *, times: int = 1, run: Run = in_thread) -> float | None:
    """Run `count` in async code; `run` calls blocking functions."""
    rate = rate_of(name)
    if rate is None:
        return None
    return await counter().atake(name, key, rate, times, closed=name in CLOSED, run=run)


async def look(name: Name, key: str, *, run: Run = in_thread) -> float | None:
    """Run `peek` in async code; `run` calls blocking functions."""
    rate = rate_of(name)
    return None if rate is None else await counter().look(name, key, rate, closed=name in CLOSED, run=run)
