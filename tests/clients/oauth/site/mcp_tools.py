"""Tools that return their caller, and the scopes that they need."""

from django.contrib.auth import get_user_model

from mcp_django import Context, tool


@tool()
def look(ctx: Context) -> str:
    """Return the caller."""
    return f"{ctx.user.get_username()} looks"


@tool(scopes=["shop:write"])
def change(ctx: Context) -> str:
    """Return the caller of a change."""
    return f"{ctx.user.get_username()} changes"


@tool(permission="auth.add_user")
def hire(ctx: Context) -> str:
    """Return the number of users."""
    return str(get_user_model()._default_manager.count())
