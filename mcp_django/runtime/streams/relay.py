"""Relay of call streams to clients that reconnect to another worker.

The worker that serves the client requests the messages after the last one received, through the event log. The worker
of the call answers with these messages, writes further ones to the log, and disconnects the previous reader. Each
remote reader has its own topic, so it cannot receive messages for an earlier one. A process that ends writes
undelivered messages to the log, for the worker that serves their clients next.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from mcp_django.runtime.events.event_log import Draft, Event
from mcp_django.runtime.events.follower import Following
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.streams.remote_reader import CONTROL, Gone, RemoteReader, topic_of
from mcp_django.runtime.streams.replay_buffer import RING_BYTES, Bounds, Reader, Ring, Said
from mcp_django.runtime.streams.replay_store import Rings
from mcp_django.server.calls.session import Session

logger = logging.getLogger("mcp_django.events")

LAST_READ = 1.0
"""Seconds at shutdown for clients to read the ends of their streams."""
LOOKS = 20
RELAY_SILENCE = 3600.0
REPEATED_BYTES = 4 * RING_BYTES
"""Maximum bytes of a stream that are logged repeatedly.

A client causes this by requesting the same messages again at another worker. Further requests are rejected.
"""
ROW_BYTES = 256
"""Approximate bytes of a log row in addition to its message."""


class Endable(Protocol):
    """Open stream that can be ended."""

    def end(self) -> None:
        """End the stream after the waiting messages."""


class CallStreams:
    """Call streams of one event loop, and the other open streams of its sessions."""

    def __init__(self, feeds: Feeds, bounds: Callable[[], Bounds], at_end: Callable[[Any], None]) -> None:
        """Create an empty registry; `add_cleanup` registers a shutdown callback."""
        self._feeds, self._bounds, self._at_end = feeds, bounds, at_end
        self.rings = Rings(bounds, on_empty=self._part)
        self.own: dict[Any, set[Endable]] = {}
        """Open streams that belong to no call here, by session primary key."""
        self._attended = False
        self._following: Following | None = None
        self._joining: asyncio.Task[None] | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, session: Session) -> Ring:
        """Open a stream of a session with its first reader."""
        if self._following is None and self._joining is None:
            self._join()
        return self.rings.open(session)

    async def resume(self, session: Session, token: str, after: int) -> "Reader | RemoteReader":
        """Return a reader of a session's stream after message `after`.

        Raises:
            StreamGoneError: the stream, or some of these messages, are gone.
        """
        ring = self.rings.find(session.pk, token)

        if ring is not None:
            reader = ring.attach(after)
            if reader is None:
                raise Gone
            return reader

        remote = RemoteReader(self._feeds, self._spawn, self._bounds().events)
        await remote.open(session.pk, token, after)
        return remote

    def has(self, session: Any) -> bool:
        """Return True if the session has a stream here. Thread-safe."""
        return session in self.own or self.rings.has(session)

    def end(self, session: Any) -> None:
        """End all streams of an ended session."""
        self.rings.end(session)
        for stream in list(self.own.get(session, ())):
            stream.end()

    def keep(self, session: Any, stream: Endable) -> Callable[[], None]:
        """Register a stream that belongs to no call; return a function that removes it."""
        self.own.setdefault(session, set()).add(stream)

        def gone() -> None:
            streams = self.own.get(session, set())
            streams.discard(stream)
            if not streams:
                self.own.pop(session, None)

        return gone

    def _join(self) -> None:
        if not self._attended:
            self._attended = True
            self._at_end(self._keep_for_others)
        self._joining = self._spawn(self._follow())

    async def _follow(self) -> None:
        try:
            following = await self._feeds.here().follow(CONTROL, self._on_event)
        except Exception:
            logger.warning(
                "Failed to subscribe to stream requests; clients cannot resume streams of this process elsewhere",
                exc_info=True,
            )
            return
        finally:
            self._joining = None

        if len(self.rings):
            self._following = following
        else:
            following.stop()

    def _part(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.stop()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_event(self, event: Event) -> None:
        wanted = event.payload
        ring = self.rings.find(wanted["session"], wanted["stream"])
        if ring is None:
            return
        reader, name = ring.reader, wanted["reader"]

        current = reader is not None and reader.relayed == name
        if event.kind == "detach":
            if current:
                ring.replace()
        elif event.kind == "attach":
            relay = self._spawn(self._confirm(ring, name) if current else self._relay(ring, name, wanted["after"]))
            self._relays.add(relay)
            relay.add_done_callback(self._relays.discard)

    async def _confirm(self, ring: Ring, name: str) -> None:
        try:
            await self._feeds.publish(Draft(topic_of(ring.session, ring.token, name), "attached"))
        except Exception:
            logger.warning("Failed to confirm a running call to another worker", exc_info=True)

    async def _relay(self, ring: Ring, name: str, after: int) -> None:
        topic, reader = topic_of(ring.session, ring.token, name), None
        if ring.repeated <= REPEATED_BYTES:
            reader = ring.attach(after, relayed=name)

        try:
            if reader is None:
                await self._feeds.publish(Draft(topic, "dropped"))
                return
            await self._feeds.publish(Draft(topic, "attached"))
            while (said := await reader.read(RELAY_SILENCE)) is not None:
                if said:
                    ring.repeated += sum(ROW_BYTES + len(message) for n, message in said if n <= ring.written)
                    ring.written = max(ring.written, said[-1].n)
                    await self._feeds.publish(*_drafts(topic, said))
            await self._feeds.publish(_end(topic, reader))
        except Exception:
            logger.warning("Failed to relay the messages of a call to another worker", exc_info=True)
            if reader is not None:
                reader.leave()

    async def _keep_for_others(self) -> None:
        """Write undelivered messages to the log, because the process ends."""
        for _ in range(LOOKS):
            if not self._relays and not any(ring.reader is not None for ring in self.rings.unheard()):
                break
            await asyncio.sleep(LAST_READ / LOOKS)

        for ring in self.rings.unheard():
            topic = topic_of(ring.session, ring.token)
            said = ring.since(ring.first - 1)
            drafts = [Draft(topic, "kept", {"first": ring.first}), *_drafts(topic, said)]
            await self._feeds.publish(*drafts, Draft(topic, "end"))
            self.rings.drop(ring)


def _drafts(topic: str, said: list[Said]) -> list[Draft]:
    # As text, so that a message is sent unchanged to the byte.
    return [Draft(topic, "message", {"n": n, "text": message.decode()}) for n, message in said]


def _end(topic: str, reader: Reader) -> Draft:
    if reader.retry is not None:
        return Draft(topic, "released", {"retry": reader.retry})
    return Draft(topic, "end")
