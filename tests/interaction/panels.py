"""Tools with apps: for all callers, behind a permission, and behind a scope."""

import functools

import mcp_django
from mcp_django.contrib.apps import app

HERE = "panels"
SCOPE = "panels:write"
tool = functools.partial(mcp_django.tool, server=HERE)

app("panel", template="testapp/panel.html", server=HERE, title="Panel")


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
