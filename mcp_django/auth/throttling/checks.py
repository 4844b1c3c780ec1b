"""Checks of `MCP["RATES"]`, before authentication and before a call."""

import math
from typing import Any

from mcp_django import conf
from mcp_django.auth.client_address import UNKNOWN, client_address
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.throttling import throttle
from mcp_django.server.ports import Executor, Overloaded

TOO_MANY = 429


async def admit_address(request: AuthRequest, executor: Executor) -> None:
    """Count a request from an address.

    Raises:
        Overloaded: the rate is exceeded; with the status 429.
    """
    if conf.get_settings().rates.address is not None:
        address = client_address(request.peer, request.headers)
        if address != UNKNOWN:
            await _admit("ADDRESS", address, 1, executor)


async def admit_messages(principal: Any, raw: Any, executor: Executor) -> None:
    """Count the messages of a principal, before they are parsed further.

    A batch counts as many messages as it holds.

    Raises:
        Overloaded: the rate is exceeded; with the status 429.
    """
    if conf.get_settings().rates.principal is not None and not principal.is_local:
        await _admit("PRINCIPAL", principal.key, max(1, len(raw)) if type(raw) is list else 1, executor)


async def admit_credential(request: AuthRequest, executor: Executor) -> None:
    """Check that an address may present a credential that is not cached as valid.

    Raises:
        Overloaded: too many credentials of the address were invalid; with the status 429.
    """
    await _failures(request, executor, counted=False)


async def note_failure(request: AuthRequest, executor: Executor) -> None:
    """Count an invalid credential from an address."""
    await _failures(request, executor, counted=True)


async def _failures(request: AuthRequest, executor: Executor, *, counted: bool) -> None:
    if conf.get_settings().rates.token_failures is None:
        return
    address = client_address(request.peer, request.headers)
    # Behind unconfigured proxies all clients have the same address.
    if address == UNKNOWN:
        return

    lease = executor.enter()
    try:
        if counted:
            await throttle.aallow("TOKEN_FAILURES", address, run=executor.run)
            return
        wait = await throttle.look("TOKEN_FAILURES", address, run=executor.run)
    finally:
        lease.close()
    if wait is not None:
        raise _too_many("Too many invalid credentials from this address", wait)


async def _admit(name: throttle.Name, key: str, times: int, executor: Executor) -> None:

    lease = executor.enter()
    try:
        wait = await throttle.aallow(name, key, times=times, run=executor.run)
    finally:
        lease.close()
    if wait is not None:
        raise _too_many("Too many requests", wait)


def _too_many(text: str, wait: float) -> Overloaded:
    seconds = math.ceil(wait)
    return Overloaded(f"{text}; wait {seconds} seconds", retry_after=seconds, status=TOO_MANY)
