"""Registry of streams and connections without a natural end, closed at shutdown.

It checks them periodically, for each event loop.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from mcp_django.aio.clock import PeriodicVisitor
from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import start_task
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.transports.credential_monitor import MonitoredStream, get_credential_monitor


class OpenStream(MonitoredStream, Protocol):
    """The part of a stream that the registry uses."""

    def check(self, send_timeout: float) -> None:
        """Check the stream; called periodically.

        A client that has read nothing for `send_timeout` seconds counts as disconnected.
        """

    def end(self) -> None:
        """Close the stream after its pending messages."""

    def abort(self) -> None:
        """End the stream at once."""


class LoopStreamRegistry:
    """The open streams of one event loop."""

    def __init__(self, lifecycle: Lifecycle, *, check_interval: float, send_timeout: float) -> None:
        """Set the intervals in seconds.

        Each stream is checked every `check_interval` seconds. A client that has read nothing for `send_timeout` seconds
        counts as disconnected.
        """
        self._lifecycle = lifecycle
        self._send_timeout = send_timeout
        self._streams: PeriodicVisitor[OpenStream] = PeriodicVisitor(check_interval, self._check)
        self._remove_drain_callback: Callable[[], None] | None = None
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: OpenStream) -> None:
        """Add an open stream. It is closed at once during shutdown."""
        if not len(self):
            self._empty.clear()
        self._streams.add(stream)
        get_credential_monitor().add(stream)
        if self._lifecycle.is_draining():
            stream.end()
        elif self._remove_drain_callback is None:
            self._remove_drain_callback = self._lifecycle.add_drain_callback(self._drain)

    def remove(self, stream: OpenStream) -> None:
        """Remove a closed stream."""
        self._streams.remove(stream)
        get_credential_monitor().remove(stream)
        if not len(self):
            self._empty.set()
            if self._remove_drain_callback is not None:
                self._remove_drain_callback()
                self._remove_drain_callback = None

    def _check(self, stream: OpenStream) -> None:
        stream.check(self._send_timeout)

    def _list_streams(self) -> Iterable[OpenStream]:
        return list(self._streams)

    def _drain(self) -> None:
        self._remove_drain_callback = None
        for stream in self._list_streams():
            stream.end()
        self._lifecycle.register(_StreamDrain(self._lifecycle, self._empty, self._list_streams))


class _StreamDrain:
    """The end of all streams of a loop, as a `Drainable` of the lifecycle."""

    is_call = False

    def __init__(
        self, lifecycle: Lifecycle, empty: asyncio.Event, list_streams: Callable[[], Iterable[OpenStream]]
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._list_streams = list_streams
        self.is_answered = False
        self.task: asyncio.Task[None] | None = start_task(self._wait(lifecycle, empty))

    async def _wait(self, lifecycle: Lifecycle, empty: asyncio.Event) -> None:
        try:
            await empty.wait()
        finally:
            self.is_answered = True
            lifecycle.active.discard(self)

    def abort(self) -> None:
        """End the streams whose clients do not read."""
        for stream in self._list_streams():
            stream.abort()


class StreamRegistry:
    """The open streams of one server in this process."""

    def __init__(self, lifecycle: Lifecycle, *, check_interval: float, send_timeout: float) -> None:
        self._registries = LoopLocal(
            partial(LoopStreamRegistry, lifecycle, check_interval=check_interval, send_timeout=send_timeout)
        )

    def get_loop_registry(self) -> LoopStreamRegistry:
        """Return the registry of the running loop."""
        return self._registries.get()
