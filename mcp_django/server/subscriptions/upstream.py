"""Upstream subscriptions: remote resources, followed while a stream is open.

The provider of a resource follows it on its own server.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mcp_django.server.calls.call import Call
from mcp_django.server.composition.mounting import innermost
from mcp_django.server.context.context import Context
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Resource, ResourceTemplate
from mcp_django.server.subscriptions.filter import readable

if TYPE_CHECKING:
    from mcp_django.server.server import Server

logger = logging.getLogger("mcp_django.server")

AGAIN = 30.0
"""Seconds between attempts to find a resource, whose server may be unavailable."""

Stop = Callable[[], None]


def may_follow(server: "Server") -> bool:
    """Return True if a provider of the server has remote resources to follow."""
    return any(provider.follows for provider in server.providers)


class Followed:
    """The upstream subscriptions of one stream. They belong to one event loop."""

    def __init__(self, call: Call, tell: Callable[[str], None]) -> None:
        """Create the subscriptions for the caller of `call`.

        `on_change` is called on the loop with the client's URI of a resource that has changed or may have changed. It
        must neither block nor raise.
        """
        self._call, self._tell = call, tell
        self._stops: dict[str, Stop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._over = False

    async def begin(self, found: Mapping[str, Resource | ResourceTemplate]) -> None:
        """Follow these readable resources. Returns when all are followed or have failed."""
        await asyncio.gather(*(self._follow(uri, primitive) for uri, primitive in found.items()))

    def add(self, uri: str, *, late: bool = False) -> None:
        """Follow a resource in the background.

        With `may_have_changed`, a change is reported once the resource is followed.
        """
        if not self._over and uri not in self._stops and uri not in self._tasks:
            work = self._find(uri, late)
            self._tasks[uri] = asyncio.get_running_loop().create_task(work, context=contextvars.Context())

    def drop(self, uri: str) -> None:
        """Stop following a resource."""
        task, stop = self._tasks.pop(uri, None), self._stops.pop(uri, None)
        if task is not None:
            task.cancel()
        if stop is not None:
            stop()

    def close(self) -> None:
        """Stop following all resources."""
        self._over = True
        for uri in [*self._tasks, *self._stops]:
            self.drop(uri)

    async def _find(self, uri: str, late: bool) -> None:
        try:
            while (found := await self._look_up(uri)) is None:
                late = True
                await asyncio.sleep(AGAIN)
            if await self._follow(uri, found) and late:
                self._tell(uri)
        finally:
            if self._tasks.get(uri) is asyncio.current_task():
                del self._tasks[uri]

    async def _look_up(self, uri: str) -> Resource | ResourceTemplate | None:
        try:
            return await readable(self._call, uri)
        except Overloaded:
            return None

    async def _follow(self, uri: str, primitive: Resource | ResourceTemplate) -> bool:
        """Follow a resource through its provider.

        Returns False if its provider cannot follow it.
        """
        call, own = innermost(self._call, primitive)
        if not isinstance(own, Resource) or own.follow is None:
            return False
        try:
            stop = await own.follow(Context(call, own), lambda: self._tell(uri))
        except Exception:
            logger.exception("Following a remote resource failed")
            return False
        if self._over:
            stop()
        else:
            self._stops[uri] = stop
        return True
