"""Declarations of the composed project: its own tools, a server to mount, and the API."""

from collections import Counter
from typing import Any

from django.conf import settings

from mcp_django import Context, completion, prompt, register, resource, tool
from mcp_django.contrib.openapi import OpenAPIToolset, Route

CALLS: Counter[str] = Counter()
PLACES = settings.COMPOSED


@tool
async def whoami(ctx: Context) -> str:
    """Return the name of the caller."""
    return str(ctx.user.username)


@tool(server="weather")
async def forecast(city: str, ctx: Context) -> str:
    """Return a forecast with the name of the caller."""
    return f"{city}: rain, {ctx.user.username}"


@tool(server="weather")
async def calls() -> int:
    """Count the calls of this server's tools."""
    return CALLS["tools/call"]


@resource("city://{name}", server="weather")
async def city(name: str, ctx: Context) -> str:
    """A city."""
    return f"{name} for {ctx.user.username}"


@prompt(server="weather")
async def report(city: str) -> str:
    """Report on a city."""
    return f"Report on {city}"


@completion("report", "city", server="weather")
async def cities(value: str) -> list[str]:
    return [name for name in ("bern", "basel") if name.startswith(value)]


async def counted(call: Any, call_next: Any) -> Any:
    """Middleware of the mounted server."""
    CALLS[call.method] += 1
    return await call_next(call)


def remote_credentials(ctx: Context) -> dict[str, str]:
    """Each user has a credential at the remote."""
    return {"Authorization": f"Bearer remote-{ctx.user.username}"}


def api_credentials(ctx: Context) -> dict[str, str]:
    """Each user has a key of the API."""
    return {"PersonalAccessToken": f"key-of-{ctx.user.username}"}


API = register(
    OpenAPIToolset(
        PLACES["document"],
        base_url=PLACES["api"],
        prefix="figma",
        credentials=api_credentials,
        routes=[
            Route("GET /v1/files/{file_key}/comments", expose="resource", uri="comments://{file_key}"),
            Route("GET /v1/me", name="me"),
            Route("* /v2/*", expose=None),
        ],
    )
)
