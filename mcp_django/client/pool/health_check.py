"""Health checks of `MCP["CLIENTS"]`, each on a separate connection."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types

from mcp_django.client.client import Client
from mcp_django.client.errors import AuthorizationNeeded, ClientConnectionError
from mcp_django.client.pool.factory import build_client
from mcp_django.client.pool.health import HEALTH_REGISTRY, describe_error, describe_server, describe_stderr
from mcp_django.client.pool.pool import client_settings
from mcp_django.protocol.revisions import REVISIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheckResult:
    """The result of a check. Times are in seconds."""

    alias: str
    reached: bool = False
    connecting: float | None = None
    """Time to connect and negotiate a revision."""
    latency: float | None = None
    """Duration of one request after that."""
    protocol_version: str = ""
    era: str = ""
    server: str = ""
    """The server's name and version, as sent by the server."""
    tools: tuple[types.Tool, ...] = field(default=(), repr=False)
    error: str = ""
    """Class name of the error."""
    error_text: str = ""
    """The error in one line, without secrets of the setting."""
    stderr: str = ""
    """The last lines of a program's standard error, without secrets of the setting."""
    url: str | None = None
    """The URL where a person may authorize the server, if authorization is missing."""


async def check_client(alias: str, *, user: Any = None, timeout: float | None = None) -> HealthCheckResult:
    """Connect to a server, list its tools, and disconnect.

    Without `timeout`, the time limits are STARTUP_TIMEOUT and TIMEOUT of the setting.
    Errors are part of the result. Raises ImproperlyConfigured for an unknown alias.
    """
    settings = client_settings(alias)
    try:
        async with asyncio.timeout(timeout):
            client = build_client(settings, user=user, retries=False)
            result = await _check_connection(client)
    except Exception as problem:
        error: Exception = problem
        if isinstance(problem, TimeoutError):
            error = ClientConnectionError(f"The server {alias!r} did not answer within {timeout:g} s")
        HEALTH_REGISTRY.record_failure(settings, error, is_call=False)
        return HealthCheckResult(
            alias=alias,
            error=type(error).__name__,
            error_text=describe_error(error, settings),
            stderr=describe_stderr(error, settings),
            url=error.url if isinstance(error, AuthorizationNeeded) else None,
        )

    HEALTH_REGISTRY.record_check(
        alias, protocol_version=result.protocol_version, server=result.server, tools=len(result.tools)
    )
    return result


async def check_clients(
    aliases: Iterable[str], *, user: Any = None, timeout: float | None = None
) -> list[HealthCheckResult]:
    """Check several servers concurrently."""
    return list(await asyncio.gather(*(check_client(alias, user=user, timeout=timeout) for alias in aliases)))


async def _check_connection(client: Client) -> HealthCheckResult:
    started_at = time.perf_counter()
    async with client:
        connected_at = time.perf_counter()
        tools: list[types.Tool] = []
        if client.capabilities.tools is not None:
            tools = await client.list_tools()
        else:
            await client.ping()
        answered_at = time.perf_counter()
        revision = client.protocol_version
        return HealthCheckResult(
            alias=client.alias or "",
            reached=True,
            connecting=connected_at - started_at,
            latency=answered_at - connected_at,
            protocol_version=revision,
            era=REVISIONS[revision].era.value,
            server=describe_server(client.server_info)[:200],
            tools=tuple(tools),
        )
