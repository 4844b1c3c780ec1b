"""Tools that say who called, and what that takes."""

from django.contrib.auth import get_user_model

from mcp_django import Context, tool


@tool()
def look(ctx: Context) -> str:
    """Say who looks."""
    return f"{ctx.user.get_username()} looks"


@tool(scopes=["shop:write"])
def change(ctx: Context) -> str:
    """Say who changes something."""
    return f"{ctx.user.get_username()} changes"


@tool(permission="auth.add_user")
def hire(ctx: Context) -> str:
    """Say how many people there are."""
    return str(get_user_model()._default_manager.count())
