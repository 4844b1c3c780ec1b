"""Registry of the call streams of a process, by event loop."""

from collections.abc import Callable
from typing import Any

from mcp_django.aio.loop_local import LoopLocal
from mcp_django.models import Session as SessionRow
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.relay import CallStreams
from mcp_django.runtime.streams.replay_buffer import ReplayLimits
from mcp_django.signals import session_closed


class CallStreamRegistry:
    """Registry of call streams; each process has one instance.

    A stream belongs to the loop of its call. Other loops treat it like a stream of another process.
    """

    def __init__(self, publisher: EventPublisher, lifecycle: Lifecycle, get_limits: Callable[[], ReplayLimits]) -> None:
        self._publisher = publisher
        self._lifecycle = lifecycle
        self._get_limits = get_limits
        self._streams = LoopLocal(self._create_streams)
        session_closed.connect(self._on_closed, sender=SessionRow)

    def get_loop_streams(self) -> CallStreams:
        """Return the call streams of the running loop."""
        return self._streams.get()

    def _create_streams(self) -> CallStreams:
        return CallStreams(self._publisher, self._get_limits, self._lifecycle.add_cleanup)

    def _on_closed(self, *, session: SessionRow, **kwargs: Any) -> None:
        """End the streams of a session that ended in this process. Thread-safe."""
        for loop, streams in self._streams.items():
            if streams.has_session(session.pk):
                try:
                    loop.call_soon_threadsafe(streams.end_session, session.pk)
                except RuntimeError:
                    continue  # the loop was closed, and its streams ended with it
