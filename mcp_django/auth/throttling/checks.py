"""Checks of `MCP["RATES"]`, before authentication and before a call."""

import math
from typing import Any

from mcp_django import conf
from mcp_django.auth.client_address import UNKNOWN_ADDRESS, get_client_address
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.throttling import throttle
from mcp_django.server.ports import Executor, Overloaded

TOO_MANY_REQUESTS_STATUS = 429


async def check_address_rate(request: AuthRequest, executor: Executor) -> None:
    """Count a request from an address.

    Raises:
        Overloaded: the rate is exceeded; with the status 429.
    """
    if conf.get_settings().rates.address is not None:
        address = get_client_address(request.peer, request.headers)
        if address != UNKNOWN_ADDRESS:
            await _count_or_raise("ADDRESS", address, 1, executor)


async def check_principal_rate(principal: Any, raw: Any, executor: Executor) -> None:
    """Count the messages of a principal, before they are parsed further.

    A batch counts as many messages as it holds.

    Raises:
        Overloaded: the rate is exceeded; with the status 429.
    """
    if conf.get_settings().rates.principal is not None and not principal.is_local:
        await _count_or_raise("PRINCIPAL", principal.key, max(1, len(raw)) if type(raw) is list else 1, executor)


async def check_failure_rate(request: AuthRequest, executor: Executor) -> None:
    """Check that an address may present a credential that is not cached as valid.

    Raises:
        Overloaded: too many credentials of the address were invalid; with the status 429.
    """
    await _apply_failure_rate(request, executor, count=False)


async def count_failure(request: AuthRequest, executor: Executor) -> None:
    """Count an invalid credential from an address."""
    await _apply_failure_rate(request, executor, count=True)


async def _apply_failure_rate(request: AuthRequest, executor: Executor, *, count: bool) -> None:
    if conf.get_settings().rates.token_failures is None:
        return
    address = get_client_address(request.peer, request.headers)
    # Behind unconfigured proxies all clients have the same address.
    if address == UNKNOWN_ADDRESS:
        return

    lease = executor.acquire_lease()
    try:
        if count:
            await throttle.acount("TOKEN_FAILURES", address, run=executor.run)
            return
        wait = await throttle.apeek("TOKEN_FAILURES", address, run=executor.run)
    finally:
        lease.close()
    if wait is not None:
        raise _build_overloaded("Too many invalid credentials from this address", wait)


async def _count_or_raise(name: throttle.RateName, key: str, times: int, executor: Executor) -> None:

    lease = executor.acquire_lease()
    try:
        wait = await throttle.acount(name, key, times=times, run=executor.run)
    finally:
        lease.close()
    if wait is not None:
        raise _build_overloaded("Too many requests", wait)


def _build_overloaded(text: str, wait: float) -> Overloaded:
    seconds = math.ceil(wait)
    return Overloaded(f"{text}; wait {seconds} seconds", retry_after=seconds, status=TOO_MANY_REQUESTS_STATUS)
