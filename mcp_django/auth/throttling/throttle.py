"""Throttles of `MCP["RATES"]`, by rate name and a key such as a client's address.

    wait = throttle.count("REGISTRATION", address)  # counts one; None, or the seconds to wait
    wait = throttle.peek("TOKEN_FAILURES", address)  # counts nothing

While the cache is down everything is allowed, and a log record is written once a minute. Only registration is refused,
because it is open to anonymous clients and each request adds a row.
"""

from typing import Final, Literal

from mcp_django import conf
from mcp_django.auth.throttling.counter import RateCounter, Run, run_in_thread
from mcp_django.server.rates import Rate

RateName = Literal["PRINCIPAL", "ADDRESS", "TOKEN_FAILURES", "REGISTRATION"]

FAIL_CLOSED_RATES: Final[frozenset[str]] = frozenset({"REGISTRATION"})
"""Rates that refuse requests while the cache cannot count."""

_counters: dict[str, RateCounter] = {}


def get_rate(name: RateName) -> Rate | None:
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


def get_counter() -> RateCounter:
    """Return the counter for the cache that the settings name."""
    alias = conf.get_settings().rates.cache
    rate_counter = _counters.get(alias)
    if rate_counter is None:
        rate_counter = _counters[alias] = RateCounter(alias)
    return rate_counter


def count(name: RateName, key: str, *, times: int = 1) -> float | None:
    """Count `times` events of `key`. Return None, or the seconds to wait. May block."""
    rate = get_rate(name)
    return None if rate is None else get_counter().count(name, key, rate, times, fail_closed=name in FAIL_CLOSED_RATES)


def peek(name: RateName, key: str) -> float | None:
    """Return the result of `count` for one more event, without counting it. May block."""
    rate = get_rate(name)
    return None if rate is None else get_counter().peek(name, key, rate, fail_closed=name in FAIL_CLOSED_RATES)


async def acount(name: RateName, key: str, *, times: int = 1, run: Run = run_in_thread) -> float | None:
    """Run `count` in async code; `run` calls blocking functions."""
    rate = get_rate(name)
    if rate is None:
        return None
    return await get_counter().acount(name, key, rate, times, fail_closed=name in FAIL_CLOSED_RATES, run=run)


async def apeek(name: RateName, key: str, *, run: Run = run_in_thread) -> float | None:
    """Run `peek` in async code; `run` calls blocking functions."""
    rate = get_rate(name)
    return (
        None
        if rate is None
        else await get_counter().apeek(name, key, rate, fail_closed=name in FAIL_CLOSED_RATES, run=run)
    )
