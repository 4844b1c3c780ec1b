"""Registry of streams and connections without a natural end, closed at shutdown.

It checks them periodically, for each event loop.
"""

import asyncio
import contextvars
import weakref
from collections.abc import Callable, Iterable
from typing import Protocol

from mcp_django.aio.periodic import Rounds
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.transports.credential_monitor import Warranted, watch


class Open(Protocol):
    """The part of a stream that the registry uses."""

    warrant: Warranted | None
    """The credential to monitor; None if the stream needs none."""

    def look(self, patience: float) -> None:
        """Check the stream; called periodically.

        A client that has read nothing for `send_timeout` seconds counts as disconnected.
        """

    def end(self) -> None:
        """Close the stream after its pending messages."""

    def lose(self) -> None:
        """End the stream because its credential has become invalid."""

    def drop(self) -> None:
        """End the stream at once."""


class OpenStreams:
    """The open streams of one event loop."""

    def __init__(self, lifecycle: Lifecycle, *, every: float, patience: float) -> None:
        """Set the intervals in seconds.

        Each stream is checked every `check_interval` seconds. A client that has read nothing for `send_timeout` seconds
        counts as disconnected.
        """
        self._lifecycle, self._patience = lifecycle, patience
        self._streams: Rounds[Open] = Rounds(every, self._look_at)
        self._take_back: Callable[[], None] | None = None
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Open) -> None:
        """Add an open stream. It is closed at once during shutdown."""
        if not len(self):
            self._empty.clear()
        self._streams.add(stream)
        watch().add(stream)
        if self._lifecycle.is_draining():
            stream.end()
        elif self._take_back is None:
            self._take_back = self._lifecycle.on_drain(self._drain)

    def discard(self, stream: Open) -> None:
        """Remove a closed stream."""
        self._streams.discard(stream)
        watch().discard(stream)
        if not len(self):
            self._empty.set()
            if self._take_back is not None:
                self._take_back()
                self._take_back = None

    def _look_at(self, stream: Open) -> None:
        stream.look(self._patience)

    def _all(self) -> Iterable[Open]:
        return list(self._streams)

    def _drain(self) -> None:
        self._take_back = None
        for stream in self._all():
            stream.end()
        self._lifecycle.board(_Landing(self._lifecycle, self._empty, self._all))


class _Landing:
    """The end of all streams of a loop, as a `Drainable` of the lifecycle."""

    is_call = False

    def __init__(self, lifecycle: Lifecycle, empty: asyncio.Event, rest: Callable[[], Iterable[Open]]) -> None:
        self.loop = asyncio.get_running_loop()
        self._rest = rest
        self.answered = False
        self.task: asyncio.Task[None] | None = self.loop.create_task(
            self._wait(lifecycle, empty), context=contextvars.Context()
        )

    async def _wait(self, lifecycle: Lifecycle, empty: asyncio.Event) -> None:
        try:
            await empty.wait()
        finally:
            self.answered = True
            lifecycle.flights.discard(self)

    def shut_down(self) -> None:
        """End the streams whose clients do not read."""
        for stream in self._rest():
            stream.drop()


class Listeners:
    """The open streams of one server in this process."""

    def __init__(self, lifecycle: Lifecycle, *, every: float, patience: float) -> None:
        self._lifecycle, self._every, self._patience = lifecycle, every, patience
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, OpenStreams] = weakref.WeakKeyDictionary()

    def here(self) -> OpenStreams:
        """Return the registry of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = OpenStreams(self._lifecycle, every=self._every, patience=self._patience)
        return found
