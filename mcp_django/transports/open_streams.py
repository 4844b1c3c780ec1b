"""What is open on a loop and has no end of its own, streams of changes and channels: looked after together, and ended
when the process is.
"""

import asyncio
import contextvars
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol

from ..runtime.lifecycle import Lifecycle

VERIFY_EVERY = 60.0
"""Seconds, about, after which is asked again whether the credential of a stream is good: it may have been revoked."""
SLOTS = 15
"""Parts in which the streams of a loop are looked after, one after the other, so that the loop never is for long."""

Verify = Callable[[], Awaitable[bool]]


class Open(Protocol):
    """A stream, as far as it is looked after."""

    verify: Verify | None
    """Is the credential that it was opened with still good? None where there is none."""
    slot: int

    def look(self, patience: float) -> None:
        """Called now and then: `patience` is the seconds after which a client that reads nothing counts as gone."""

    def end(self) -> None:
        """End it in order."""

    def drop(self) -> None:
        """It is over, whatever waits."""


_running: set[asyncio.Task[None]] = set()
"""The loop knows its tasks weakly."""


def run_aside(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a task of its own, in a clean context."""
    _running.add(task := asyncio.get_running_loop().create_task(work, context=contextvars.Context()))
    task.add_done_callback(_running.discard)


async def _verify(stream: Open, verify: Verify) -> None:
    if not await verify():
        stream.end()


class OpenStreams:
    """The open streams of one loop."""

    def __init__(self, lifecycle: Lifecycle, *, every: float, patience: float) -> None:
        """Each is looked at `every` so many seconds; after `patience` a client that reads nothing counts as gone."""
        self._lifecycle, self._every, self._patience = lifecycle, every, patience
        self._slots: tuple[set[Open], ...] = tuple(set() for _ in range(SLOTS))
        self._next = self._round = 0
        self._rounds = max(1, round(VERIFY_EVERY / every))
        self._timer: asyncio.TimerHandle | None = None
        self._take_back: Callable[[], None] | None = None
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._slots))

    def add(self, stream: Open) -> None:
        """It is open. While the process ends, it is told so at once."""
        if not len(self):
            self._empty.clear()
        stream.slot = min(range(SLOTS), key=lambda slot: len(self._slots[slot]))
        self._slots[stream.slot].add(stream)
        if self._timer is None:
            self._wait()
        if self._lifecycle.is_draining():
            stream.end()
        elif self._take_back is None:
            self._take_back = self._lifecycle.on_drain(self._drain)

    def discard(self, stream: Open) -> None:
        """It is over."""
        self._slots[stream.slot].discard(stream)
        if not len(self):
            self._empty.set()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._take_back is not None:
                self._take_back()
                self._take_back = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._every / SLOTS, self._look, context=contextvars.Context())

    def _look(self) -> None:
        self._wait()
        self._next = (self._next + 1) % SLOTS
        self._round += not self._next
        for stream in tuple(self._slots[self._next]):
            stream.look(self._patience)
            if stream.verify is not None and self._round % self._rounds == 0:
                run_aside(_verify(stream, stream.verify))

    def _all(self) -> Iterable[Open]:
        return [stream for slot in self._slots for stream in slot]

    def _drain(self) -> None:
        self._take_back = None
        for stream in self._all():
            stream.end()
        self._lifecycle.board(_Landing(self._lifecycle, self._empty, self._all))


class _Landing:
    """The end of all streams of a loop, as the lifecycle waits for it."""

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
        """Those whose clients do not read are cut off."""
        for stream in self._rest():
            stream.drop()


class Listeners:
    """The open streams of one server in this process."""

    def __init__(self, lifecycle: Lifecycle, *, every: float, patience: float) -> None:
        self._lifecycle, self._every, self._patience = lifecycle, every, patience
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, OpenStreams] = weakref.WeakKeyDictionary()

    def here(self) -> OpenStreams:
        """Those of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = OpenStreams(self._lifecycle, every=self._every, patience=self._patience)
        return found
