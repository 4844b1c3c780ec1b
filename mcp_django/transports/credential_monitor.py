"""Credential monitor: verify open streams again, and close the revoked ones.

A credential may be revoked, or lose scopes, while a stream is open.
"""

import asyncio
import logging
import weakref
from typing import Protocol

from mcp_django.aio.periodic import Rounds
from mcp_django.aio.tasks import run_aside
from mcp_django.auth.authentication.principal_cache import when_forgotten

logger = logging.getLogger("mcp_django.auth")

VERIFY_EVERY = 4.0
"""Seconds between two verifications of an open stream.

Verified credentials are cached for TOKEN_CACHE_SECONDS (ten by default). A stream therefore outlives its credential by
less than fifteen seconds.
"""


class Warranted(Protocol):
    """A credential that can be verified again while a stream is open."""

    def is_surely_good(self) -> bool:
        """Return True if the cache proves that the credential is valid; never blocks.

        False means that it must be verified.
        """

    async def is_good(self) -> bool:
        """Return True if the credential is valid now, or cannot be verified at the moment."""


class Watched(Protocol):
    """The part of a stream that the monitor uses."""

    warrant: Warranted | None
    """The credential to verify; None if the stream needs none."""

    def lose(self) -> None:
        """End the stream because its credential has become invalid."""


class Watch:
    """The monitored streams of one event loop."""

    def __init__(self) -> None:
        self._streams: Rounds[Watched] = Rounds(VERIFY_EVERY, _look_at)
        self._wanted = self._looking = False

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Watched) -> None:
        """Monitor a stream, unless it has no credential."""
        if stream.warrant is not None:
            self._streams.add(stream)

    def discard(self, stream: Watched) -> None:
        """Stop monitoring a stream. May be called more than once."""
        self._streams.discard(stream)

    def look(self) -> None:
        """Verify all streams now, after an invalidation of cached principals."""
        self._wanted = True
        if not self._looking and len(self._streams):
            self._looking = True
            run_aside(self._look())

    async def _look(self) -> None:
        """Verify the streams one by one, because there may be a thousand."""
        try:
            while self._wanted:
                self._wanted = False
                for stream in self._streams:
                    if stream.warrant is not None and not stream.warrant.is_surely_good():
                        await _verify(stream, stream.warrant)
        finally:
            self._looking = False


_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = weakref.WeakKeyDictionary()


def watch() -> Watch:
    """Return the credential monitor of the running loop."""
    loop = asyncio.get_running_loop()
    found = _watches.get(loop)
    if found is None:
        found = _watches[loop] = Watch()
    return found


def look_everywhere() -> None:
    """Make all loops of this process verify their streams now. Thread-safe."""
    for loop, found in list(_watches.items()):
        try:
            loop.call_soon_threadsafe(found.look)
        except RuntimeError:
            pass  # The loop is closed, and its streams with it.


when_forgotten(look_everywhere)


def _look_at(stream: Watched) -> None:
    warrant = stream.warrant
    if warrant is not None and not warrant.is_surely_good():
        run_aside(_verify(stream, warrant))


async def _verify(stream: Watched, warrant: Warranted) -> None:
    try:
        if not await warrant.is_good():
            stream.lose()
    except Exception:
        logger.exception("The credential of a stream could not be verified; it will be verified again")
