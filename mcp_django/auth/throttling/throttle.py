"""The throttles of `MCP["RATES"]`, for whoever guards a door: by a name and a key, such as a client's address.

    wait = throttle.allow("REGISTRATION", address)  # counts one; None, or the seconds to wait
    wait = throttle.wait("TOKEN_FAILURES", address)  # counts nothing

While the cache is down everything is allowed, and the log says so once a minute; registration alone is closed then,
because anybody may ask for it and each time leaves a row.
"""

from typing import Final, Literal

from mcp_django import conf
from mcp_django.auth.throttling.counter import Counter, Run, in_thread
from mcp_django.server.rates import Rate

Name = Literal["PRINCIPAL", "ADDRESS", "TOKEN_FAILURES", "REGISTRATION"]

CLOSED: Final[frozenset[str]] = frozenset({"REGISTRATION"})
"""What is refused when nobody can count."""

_counters: dict[str, Counter] = {}


def rate_of(name: Name) -> Rate | None:
    """The rate of that name in `MCP["RATES"]`; None when there is none."""
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
    """Counts in the cache that the settings name."""
    alias = conf.get_settings().rates.cache
    found = _counters.get(alias)
    if found is None:
        found = _counters[alias] = Counter(alias)
    return found


def allow(name: Name, key: str, *, times: int = 1) -> float | None:
    """Count `times` more for `key`; None, or the seconds to wait when that is too much. May block."""
    rate = rate_of(name)
    return None if rate is None else counter().take(name, key, rate, times, closed=name in CLOSED)


def wait(name: Name, key: str) -> float | None:
    """What `allow` would say to one more, which is not counted. May block."""
    rate = rate_of(name)
    return None if rate is None else counter().wait(name, key, rate, closed=name in CLOSED)


async def aallow(name: Name, key: str, *, times: int = 1, run: Run = in_thread) -> float | None:
    """`allow` for async code; `run` calls what may block."""
    rate = rate_of(name)
    if rate is None:
        return None
    return await counter().atake(name, key, rate, times, closed=name in CLOSED, run=run)


async def look(name: Name, key: str, *, run: Run = in_thread) -> float | None:
    """`wait` for async code."""
    rate = rate_of(name)
    return None if rate is None else await counter().look(name, key, rate, closed=name in CLOSED, run=run)
