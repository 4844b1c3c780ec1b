"""Providers: sources of primitives without decorators.

Examples are stored rows, mounts, remote servers and low-level handlers. Subclass `Provider` and override the methods of
the offered kinds; the defaults are empty. Provided primitives are listed together with the registered ones, to callers
with permission. A registered primitive takes precedence over a provided one with the same key. `version` changes
whenever a list may have changed.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import describe_failure
from mcp_django.server.calls.call import Call
from mcp_django.server.context.context import Context
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Completion, Primitive, Prompt, Resource, ResourceTemplate, Tool

logger = get_logger("mcp_django.server")
T = TypeVar("T")


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


async def list_provided(call: Call, provider: Provider, collection: str, context: Context) -> Iterable[Primitive]:
    """Return a list of a provider, such as "tools"; an empty one if the provider fails, which is logged."""
    try:
        provided: Iterable[Primitive] = await getattr(provider, collection)(context)
    except Exception as problem:
        _check_provider_bug(call, provider, problem)
        _log_provider_bug(call, provider, problem)
        return ()
    _FAILED_PROVIDERS.discard(provider)
    return provided


async def find_provided(
    call: Call, providers: Iterable[Provider], find: Callable[[Provider], Awaitable[T | None]]
) -> T | None:
    """Return the first result of a provider that is not None.

    A provider that fails is skipped. If no other one has a result, its exception is raised.
    """
    failures: list[tuple[Provider, Exception]] = []
    found: T | None = None
    for provider in providers:
        try:
            found = await find(provider)
        except Exception as problem:
            _check_provider_bug(call, provider, problem)
            failures.append((provider, problem))
        if found is not None:
            break

    if found is None and failures:
        raise failures[0][1]
    for failed, failure in failures:
        _log_provider_bug(call, failed, failure)
    return found


async def find_provided_tool(call: Call, name: str) -> Tool | None:
    """Return the tool called `name` of the first provider that has one."""
    providers = get_providers(call, "tools")
    context = Context(call) if providers else None
    return None if context is None else await find_provided(call, providers, lambda one: one.tool(name, context))


def _check_provider_bug(call: Call, provider: Provider, problem: Exception) -> None:
    """Check that an exception of a provider is a bug of its own.

    Raises errors of the protocol, failures of the server's storage, and every exception with `raise_bugs`.
    """
    if isinstance(problem, MCPError | Overloaded) or call.server.options.raise_bugs:
        raise problem
    subject = f"provider {_get_name(provider)} of server {call.server.alias!r}"
    overload = call.server.ports.report_unavailability(subject, problem)
    if overload is not None:
        raise overload from problem


def _log_provider_bug(call: Call, provider: Provider, problem: Exception) -> None:
    if provider not in _FAILED_PROVIDERS:
        _FAILED_PROVIDERS.add(provider)
        text = "Provider %s of server %r failed, its primitives are left out: %s"
        logger.error(text, _get_name(provider), call.server.alias, describe_failure(problem), exc_info=problem)


def _get_name(provider: Provider) -> str:
    return type(provider).__qualname__


_FAILED_PROVIDERS: "WeakSet[Provider]" = WeakSet()
"""Providers whose last list failed; each failure is logged once."""
