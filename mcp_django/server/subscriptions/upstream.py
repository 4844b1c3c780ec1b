"""Upstream subscriptions: remote resources, followed while a stream is open.

The provider of a resource follows it on its own server.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mcp_django.aio.tasks import start_task
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.mounting import resolve_innermost
from mcp_django.server.context.context import Context
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Resource, ResourceTemplate
from mcp_django.server.subscriptions.filter import find_readable

if TYPE_CHECKING:
    from mcp_django.server.server import Server

logger = get_logger("mcp_django.server")

LOOKUP_RETRY_SECONDS = 30.0
"""Seconds between attempts to find a resource, whose server may be unavailable."""

StopFollowing = Callable[[], None]


def has_upstream(server: "Server") -> bool:
    """Return True if a provider of the server has remote resources to follow."""
    return any(provider.follows for provider in server.providers)


class UpstreamSubscriptions:
    """The upstream subscriptions of one stream. They belong to one event loop."""

    def __init__(self, call: Call, on_change: Callable[[str], None]) -> None:
        """Create the subscriptions for the caller of `call`.

        `on_change` is called on the loop with the client's URI of a resource that has changed or may have changed. It
        must neither block nor raise.
        """
        self._call = call
        self._on_change = on_change
        self._stops: dict[str, StopFollowing] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False

    async def start(self, resources: Mapping[str, Resource | ResourceTemplate]) -> None:
        """Follow these readable resources. Returns when all are followed or have failed."""
        await asyncio.gather(*(self._follow(uri, primitive) for uri, primitive in resources.items()))

    def add(self, uri: str, *, may_have_changed: bool = False) -> None:
        """Follow a resource in the background.

        With `may_have_changed`, a change is reported once the resource is followed.
        """
        if not self._is_closed and uri not in self._stops and uri not in self._tasks:
            self._tasks[uri] = start_task(self._find_and_follow(uri, may_have_changed))

    def remove(self, uri: str) -> None:
        """Stop following a resource."""
        task, stop = self._tasks.pop(uri, None), self._stops.pop(uri, None)
        if task is not None:
            task.cancel()
        if stop is not None:
            stop()

    def close(self) -> None:
        """Stop following all resources."""
        self._is_closed = True
        for uri in [*self._tasks, *self._stops]:
            self.remove(uri)

    async def _find_and_follow(self, uri: str, may_have_changed: bool) -> None:
        try:
            while (resource := await self._find_resource(uri)) is None:
                may_have_changed = True
                await asyncio.sleep(LOOKUP_RETRY_SECONDS)
            if await self._follow(uri, resource) and may_have_changed:
                self._on_change(uri)
        finally:
            if self._tasks.get(uri) is asyncio.current_task():
                del self._tasks[uri]

    async def _find_resource(self, uri: str) -> Resource | ResourceTemplate | None:
        try:
            return await find_readable(self._call, uri)
        except Overloaded:
            return None

    async def _follow(self, uri: str, primitive: Resource | ResourceTemplate) -> bool:
        """Follow a resource through its provider.

        Returns False if its provider cannot follow it.
        """
        call, served = resolve_innermost(self._call, primitive)
        if not isinstance(served, Resource) or served.follow is None:
            return False
        try:
            stop = await served.follow(Context(call, served), lambda: self._on_change(uri))
        except Exception:
            logger.exception("Following a remote resource failed")
            return False
        if self._is_closed:
            stop()
        else:
            self._stops[uri] = stop
        return True
