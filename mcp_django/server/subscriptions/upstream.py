"""Resources that are elsewhere: whoever serves them follows them there while a client's stream is open here."""

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
"""Seconds after which a resource is looked for again that could not be found: who serves it may be down."""

Stop = Callable[[], None]


def may_follow(server: "Server") -> bool:
    """Is anything of the server elsewhere?"""
    return any(provider.follows for provider in server.providers)


class Followed:
    """What one stream has followed, until `close`. Belongs to the loop that it is used on."""

    def __init__(self, call: Call, tell: Callable[[str], None]) -> None:
        """`call` says who listens. `tell` is called on the loop with a URI, as the client has it, when the resource has
        changed or may have; it must neither block nor raise.
        """
        self._call, self._tell = call, tell
        self._stops: dict[str, Stop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._over = False

    async def begin(self, found: Mapping[str, Resource | ResourceTemplate]) -> None:
        """Follow these resources, which the caller may read. Returns when that holds, or has been waited for."""
        await asyncio.gather(*(self._follow(uri, primitive) for uri, primitive in found.items()))

    def add(self, uri: str, *, late: bool = False) -> None:
        """Follow one, without waiting for that. `late` says that it may have changed before."""
        if not self._over and uri not in self._stops and uri not in self._tasks:
            work = self._find(uri, late)
            self._tasks[uri] = asyncio.get_running_loop().create_task(work, context=contextvars.Context())

    def drop(self, uri: str) -> None:
        """Follow it no more."""
        task, stop = self._tasks.pop(uri, None), self._stops.pop(uri, None)
        if task is not None:
            task.cancel()
        if stop is not None:
            stop()

    def close(self) -> None:
        """Follow nothing any more."""
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
        """Have it followed by whoever serves it, if that is somebody who has to be told."""
        call, own = innermost(self._call, primitive)
        if not isinstance(own, Resource) or own.follow is None:
            return False
        try:
            stop = await own.follow(Context(call, own), lambda: self._tell(uri))
        except Exception:
            logger.exception("The changes of a resource cannot be followed")
            return False
        if self._over:
            stop()
        else:
            self._stops[uri] = stop
        return True
