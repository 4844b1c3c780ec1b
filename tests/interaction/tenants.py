"""A project with tenants: middleware of the server notes whose call it is, and everything else looks there."""

from contextvars import ContextVar
from typing import Annotated, Any

from django.utils import translation

import mcp_django
from mcp_django import Context, Depends, MCPError
from mcp_django.lowlevel import Handlers
from mcp_django.providers import Provider

TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")
CALLS: list[tuple[str, str, str | None]] = []
"""Methods, whose they were and in which language, as the middleware sees them."""


async def of_the_url(call: Any, call_next: Any) -> Any:
    """Server middleware: the tenant is in the URL, in a header, or in the query."""
    tenant = call.headers.get("x-tenant") or call.request.GET.get("tenant") or call.url_kwargs["tenant"]
    if tenant == "closed":
        raise MCPError("This tenant is closed")
    TENANT.set(tenant)
    CALLS.append((call.method, tenant, translation.get_language()))
    return await call_next(call)


def current() -> str:
    """A dependency."""
    return TENANT.get()


async def current_async() -> str:
    """A dependency that awaits nothing."""
    return TENANT.get()


@mcp_django.tool(server="tenants")
async def tenant(
    ctx: Context, plain: Annotated[str, Depends(current)], awaited: Annotated[str, Depends(current_async)]
) -> list[Any]:
    """Return the tenant of the call, and the arguments of the URL."""
    return [TENANT.get(), plain, awaited, ctx.url_kwargs["tenant"], ctx.url_kwargs["floor"]]


@mcp_django.tool(server="tenants")
def tenant_in_a_thread() -> str:
    """The same in a plain function."""
    return TENANT.get()


@mcp_django.tool(server="tenants")
async def ask_tenant(ctx: Context) -> str:
    """The same after a question."""
    await ctx.elicit("Go on?", None, key="on")
    return TENANT.get()


@mcp_django.resource("tenant://me", server="tenants")
async def me() -> str:
    """The same as a resource."""
    return TENANT.get()


@mcp_django.prompt(server="tenants")
async def greet(name: str) -> str:
    """The same as a prompt."""
    return TENANT.get()


@mcp_django.completion("greet", "name", server="tenants")
async def complete_name(value: str) -> list[str]:
    """The same as a completion."""
    return [TENANT.get()]


async def list_tools(ctx: Context) -> list[dict[str, Any]]:
    """List the tools of this tenant only."""
    return [{"name": f"room_{TENANT.get()}", "description": "A room.", "inputSchema": {"type": "object"}}]


async def call_tool(name: str, arguments: dict[str, Any], ctx: Context) -> str:
    """Enter it."""
    return f"{name} of {TENANT.get()}"


rooms: Provider = Handlers(list_tools=list_tools, call_tool=call_tool)
