"""Tools with apps: for all callers, behind a permission, and behind a scope."""

import functools
from typing import Any

import httpx2
from django.core.asgi import get_asgi_application

import mcp_django
from mcp_django.asgi import mount
from mcp_django.client import StreamableHTTP
from mcp_django.contrib.apps import app
from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.connections.targets import TargetSource

SERVER = "panels"
SCOPE = "panels:write"
tool = functools.partial(mcp_django.tool, server=SERVER)

app(
    "panel",
    template="testapp/panel.html",
    server=SERVER,
    title="Panel",
    csp={"connect_domains": ["https://api.example.com"]},
    prefers_border=True,
)


@tool(ui="panel")
def show_panel(number: int) -> mcp_django.ToolResult:
    """Show a panel."""
    return mcp_django.ToolResult(f"Panel {number}", structured={"html": f"<p>{number}</p>"})


@tool(ui="panel", permission="auth.view_group")
def show_groups() -> str:
    """Show the groups."""
    return "groups"


@tool(ui="panel", scopes=[SCOPE])
def show_scoped() -> str:
    """Show more."""
    return "more"


@tool(visibility=["app"], permission="auth.view_group")
def save_panel(number: int) -> str:
    """Save a panel."""
    return f"saved {number}"


def create_proxy() -> Proxy:
    """Return a proxy of this server, which is reached over HTTP as root."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        # Mounted at the request: the servers are being created now.
        await mount(get_asgi_application())(scope, receive, send)

    headers = {"Authorization": "Bearer root"}
    target = StreamableHTTP(f"http://127.0.0.1/mcp/{SERVER}", headers=headers, transport=httpx2.ASGITransport(serve))
    return Proxy(TargetSource("r", target, protocol_version="stateless", max_retries=0), permission="any")
