"""Authorization of a remote server by the user: prompts and placeholder tools."""

from collections.abc import Awaitable, Callable
from typing import Any

from mcp_django.client import AuthorizationNeeded
from mcp_django.contrib.proxies.catalog.components import ComponentOptions
from mcp_django.contrib.proxies.forwarding.failures import describe_authorization
from mcp_django.extensions.calls import Context
from mcp_django.extensions.errors import ToolError
from mcp_django.extensions.primitives import Handler, Tool
from mcp_django.providers.prefixes import NamePrefixes
from mcp_django.types import ToolAnnotations

CONNECT_TOOL_NAME = "connect"


class _NoParameters:
    """Empty parameters; ignores the arguments of replaced tools."""

    schema: dict[str, Any] = {"type": "object", "properties": {}}
    header_params = ()

    def check(self, arguments: dict[str, Any]) -> None:
        return None

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {}


def build_connect_tool(
    name: str, naming: NamePrefixes, options: ComponentOptions, run: Callable[[Context], Awaitable[str]]
) -> Tool:
    """Build the tool that is listed until the caller has authorized the remote server.

    It handles calls of all tools of the server, by sending the user to the authorization page.
    """
    return Tool(
        name=naming.name(CONNECT_TOOL_NAME),
        title=f"Connect {name}",
        description=f"Asks you to allow this site to use {name} for you. Its tools are listed then.",
        permission=options.permission,
        scopes=options.scopes,
        rate=options.rate,
        handler=Handler(run, {"ctx": Context}, atomic=()),
        parameters=_NoParameters(),
        annotations=ToolAnnotations(read_only=False, destructive=False, idempotent=True, open_world=True),
        source=f"the server {name!r}",
    )


def build_unavailable_tool(name: str, naming: NamePrefixes, options: ComponentOptions, *, is_starting: bool) -> Tool:
    """Build the unlisted tool that handles calls while the remote tools are unknown."""
    state = "is still starting" if is_starting else "cannot be reached now"

    async def raise_unavailable() -> None:
        raise ToolError(f"The server {name!r} {state}; try again later")

    return Tool(
        name=naming.name("absent"),
        permission=options.permission,
        scopes=options.scopes,
        rate=options.rate,
        handler=Handler(raise_unavailable, atomic=()),
        parameters=_NoParameters(),
        source=f"the server {name!r}",
    )


async def request_authorization(ctx: Context, name: str, problem: AuthorizationNeeded) -> None:
    """Send the user to the authorization page.

    Raises ToolError, with the URL, if the client cannot open pages or the user declines.
    """
    if problem.url is None or not ctx.call.supports({"elicitation": {"url": {}}}):
        raise ToolError(describe_authorization(problem, name, ctx))
    answer = await ctx.elicit_url(f"Allow this site to use {name} for you", problem.url, key=f"connect-{name}")
    if not answer:
        raise ToolError(f"You declined to authorize {name}, so it cannot be used")
