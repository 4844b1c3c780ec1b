"""Whether those whom streams are open for may still read them: a credential may have been revoked, or lost scopes."""

import asyncio
import logging
import weakref
from typing import Protocol

from mcp_django.aio.periodic import Rounds
from mcp_django.aio.tasks import run_aside
from mcp_django.auth.authentication.principal_cache import when_forgotten

logger = logging.getLogger("mcp_django.auth")

VERIFY_EVERY = 4.0
"""Seconds after which that is asked again. With the time for which a verified credential is remembered, ten seconds
unless TOKEN_CACHE_SECONDS says otherwise, a stream outlives what it was opened with by less than fifteen.
"""


class Warranted(Protocol):
    """Whether the credential that a stream was opened with is still good."""

    def is_surely_good(self) -> bool:
        """Is it, without asking anybody? False when that has to be asked."""

    async def is_good(self) -> bool:
        """Is it now? Yes, while that cannot be found out."""


class Watched(Protocol):
    """A stream, as far as it is watched."""

    warrant: Warranted | None
    """None where it needs none."""

    def lose(self) -> None:
        """End it: its warrant is good no more."""


class Watch:
    """The watched streams of one loop."""

    def __init__(self) -> None:
        self._streams: Rounds[Watched] = Rounds(VERIFY_EVERY, _look_at)
        self._wanted = self._looking = False

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Watched) -> None:
        """Watch a stream, unless it needs no warrant."""
        if stream.warrant is not None:
            self._streams.add(stream)

    def discard(self, stream: Watched) -> None:
        """It is over. May be called more than once."""
        self._streams.discard(stream)

    def look(self) -> None:
        """Look at all of them now: something was taken away from somebody."""
        self._wanted = True
        if not self._looking and len(self._streams):
            self._looking = True
            run_aside(self._look())

    async def _look(self) -> None:
        """One after the other, because a thousand may have to be verified."""
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
    """That of the running loop."""
    loop = asyncio.get_running_loop()
    found = _watches.get(loop)
    if found is None:
        found = _watches[loop] = Watch()
    return found


def look_everywhere() -> None:
    """Have all loops of this process look at their streams now. Called from any thread."""
    for loop, found in list(_watches.items()):
        try:
            loop.call_soon_threadsafe(found.look)
        except RuntimeError:
            pass  # the loop is closed, and what was open on it is gone


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
        logger.exception("Whether a stream may go on could not be found out; it is asked again")
