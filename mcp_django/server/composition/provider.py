"""Primitives that do not come from decorators: stored rows, mounts, other servers, hand-written handlers.

Subclass `Provider` and override what it offers; everything defaults to nothing. What a provider lists is shown to
those who may see it, sorted in with the registered primitives; a registered primitive wins over a provided one of the
same key. `version` changes whenever a list may have changed.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

from mcp_django.server.calls.call import Call
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Completion, Prompt, Resource, ResourceTemplate, Tool


class Provider:
    """A source of primitives, asked anew for each call."""

    offers: frozenset[str] = frozenset({"tools", "resources", "prompts", "completions"})
    """The capabilities that this provider may serve."""
    follows: bool = False
    """Has it resources to `follow`? Without that nobody looks for them."""

    @property
    def version(self) -> Hashable:
        """Changes whenever what it lists may have changed; clients are told then. The same in every process, by `repr`.
        None while that is not known, which is no change.

        Read once a second while a client listens, on a thread: it may ask the database.
        """
        return 0

    @property
    def is_remote(self) -> bool:
        """Does another server say what it has? Then whatever this project has of the same key comes first."""
        return False

    def look(self) -> None:
        """A client listens. Called on the event loop before `version` is read, for what has to be fetched so that it is
        known; must not block.
        """

    @property
    def is_watched(self) -> bool:
        """Does it have a `version` of its own to look at? Without one nobody looks."""
        return type(self).version is not Provider.version

    def guarded(self) -> frozenset[str]:
        """The capabilities whose lists may differ with Django's permissions: when those change, who listens is told of
        these lists. Asked on a thread.
        """
        return self.offers

    def within(self) -> "Provider | None":
        """What of it is served where its server is mounted in another one; by default all."""
        return self

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        """Every tool."""
        return ()

    async def tool(self, name: str, ctx: Context) -> Tool | None:
        """The tool called `name`."""
        return next((tool for tool in await self.tools(ctx) if tool.name == name), None)

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        """Every resource that lists show."""
        return ()

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        """Every resource template."""
        return ()

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        """The resource at `uri`, listed or not."""
        return next((resource for resource in await self.resources(ctx) if resource.uri == uri), None)

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        """Every prompt."""
        return ()

    async def prompt(self, name: str, ctx: Context) -> Prompt | None:
        """The prompt called `name`."""
        return next((prompt for prompt in await self.prompts(ctx) if prompt.name == name), None)

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | Sequence[str] | None:
        """Values for an argument of the prompt or template `target`; None when it is not this provider's to say."""
        return None


def in_order(providers: Iterable[Provider]) -> tuple[Provider, ...]:
    """As they are asked: those of other servers last."""
    return tuple(sorted(providers, key=lambda provider: provider.is_remote))


async def provided_tool(call: Call, name: str) -> Tool | None:
    """The tool called `name` of the first provider that has one."""
    context: Context | None = None
    for provider in call.server.providers:
        if "tools" in provider.offers:
            context = context or Context(call)
            tool = await provider.tool(name, context)
            if tool is not None:
                return tool
    return None
