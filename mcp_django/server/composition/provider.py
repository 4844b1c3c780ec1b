"""Providers: sources of primitives without decorators.

Examples are stored rows, mounts, remote servers and low-level handlers. Subclass `Provider` and override the methods of
the offered kinds; the defaults are empty. Provided primitives are listed together with the registered ones, to callers
with permission. A registered primitive takes precedence over a provided one with the same key. `version` changes
whenever a list may have changed.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from mcp_django.server.calls.call import Call
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Completion, Prompt, Resource, ResourceTemplate, Tool


class Provider:
    """A source of primitives, queried for each call."""

    offers: frozenset[str] = frozenset({"tools", "resources", "prompts", "completions"})
    """Capabilities that this provider may serve."""
    follows: bool = False
    """True if its resources support `Resource.follow`."""

    @property
    def version(self) -> Hashable:
        """Version of the lists; clients are notified when it changes.

        Its `repr` must be equal in all processes. None while the version is unknown, which does not count as a change.
        It is read on a thread once a second while a client listens, so it may query the database.
        """
        return 0

    @property
    def is_remote(self) -> bool:
        """True for a remote server; primitives of this project take precedence over it."""
        return False

    def refresh(self) -> None:
        """Prefetch data for `version`, because a client listens.

        Called on the event loop before `version` is read; must not block.
        """

    @property
    def has_version(self) -> bool:
        """True if the provider has its own `version`; only then is it checked for changes."""
        return type(self).version is not Provider.version

    def get_permission_dependent(self) -> frozenset[str]:
        """Return the capabilities whose lists can depend on Django's permissions.

        Clients receive list notifications for them when permissions change. Called on a thread.
        """
        return self.offers

    def check(self) -> Iterable[Any]:
        """Yield messages of Django's system checks about the provided primitives."""
        return ()

    def for_mounting(self) -> "Provider | None":
        """Return the provider for use in a host server, or None; the default is all of it."""
        return self

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        """Return all tools."""
        return ()

    async def tool(self, name: str, ctx: Context) -> Tool | None:
        """Return the tool called `name`."""
        return next((tool for tool in await self.tools(ctx) if tool.name == name), None)

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        """Return all listed resources."""
        return ()

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        """Return all resource templates."""
        return ()

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        """Return the resource at `uri`, listed or not."""
        return next((resource for resource in await self.resources(ctx) if resource.uri == uri), None)

    async def wait_for_resources(self, ctx: Context) -> bool:
        """Wait for lists of resources that are still being loaded; return True if one was loaded.

        Called before a resource that no provider has counts as missing.
        """
        return False

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        """Return all prompts."""
        return ()

    async def prompt(self, name: str, ctx: Context) -> Prompt | None:
        """Return the prompt called `name`."""
        return next((prompt for prompt in await self.prompts(ctx) if prompt.name == name), None)

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | Sequence[str] | None:
        """Return values for a prompt argument or template variable; None if unknown."""
        return None


def sort_providers(providers: Iterable[Provider]) -> tuple[Provider, ...]:
    """Return the providers in lookup order: remote servers last."""
    return tuple(sorted(providers, key=lambda provider: provider.is_remote))


def get_providers(call: Call, capability: str) -> list[Provider]:
    """Return the providers of the call's server that may serve a capability."""
    return [provider for provider in call.server.providers if capability in provider.offers]


async def find_provided_tool(call: Call, name: str) -> Tool | None:
    """Return the tool called `name` of the first provider that has one."""
    context: Context | None = None
    for provider in get_providers(call, "tools"):
        context = context or Context(call)
        tool = await provider.tool(name, context)
        if tool is not None:
            return tool
    return None
