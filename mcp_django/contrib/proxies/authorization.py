"""People who have not allowed a remote yet: how they are told, and sent there."""

from collections.abc import Awaitable, Callable
from typing import Any

from mcp_django.client.errors import AuthorizationNeeded
from mcp_django.contrib.proxies.catalog.components import Terms
from mcp_django.contrib.proxies.forwarding.failures import needed
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.providers.prefixes import Naming
from mcp_django.server.context.context import Context
from mcp_django.server.context.forwarding import supports
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.base import Tool

CONNECT = "connect"


class _Nothing:
    """Takes no arguments, and passes over those of tools that it stands in for."""

    schema: dict[str, Any] = {"type": "object", "properties": {}}
    header_params = ()

    def check(self, arguments: dict[str, Any]) -> None:
        return None

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {}


def connect_tool(name: str, naming: Naming, terms: Terms, run: Callable[[Context], Awaitable[str]]) -> Tool:
    """The tool that is listed in the place of a remote's, and answers for all of them, while its caller has not allowed
    it: it sends them there.
    """
    return Tool(
        name=naming.name(CONNECT),
        title=f"Connect {name}",
        description=f"Asks you to allow this site to use {name} for you. Its tools are listed then.",
        permission=terms.permission,
        scopes=terms.scopes,
        rate=terms.rate,
        handler=Handler(run, {"ctx": Context}, atomic=()),
        parameters=_Nothing(),
        annotations=ToolAnnotations(read_only=False, destructive=False, idempotent=True, open_world=True),
        source=f"the server {name!r}",
    )


def absent_tool(name: str, naming: Naming, terms: Terms) -> Tool:
    """The tool, listed nowhere, that answers for all of a remote's while nobody knows which those are."""

    async def absent() -> None:
        raise ToolError(f"The server {name!r} cannot be reached now; try again later")

    return Tool(
        name=naming.name("absent"),
        permission=terms.permission,
        scopes=terms.scopes,
        rate=terms.rate,
        handler=Handler(absent, atomic=()),
        parameters=_Nothing(),
        source=f"the server {name!r}",
    )


async def connected(ctx: Context, name: str, problem: AuthorizationNeeded) -> None:
    """Send the caller to where it can be allowed. Raises ToolError, with the address, where the client cannot, or the
    person does not want to.
    """
    if problem.url is None or not supports(ctx, {"elicitation": {"url": {}}}):
        raise ToolError(needed(problem, name, ctx))
    answer = await ctx.elicit_url(f"Allow this site to use {name} for you", problem.url, key=f"connect-{name}")
    if not answer:
        raise ToolError(f"Without leave of yours {name} cannot be used")
