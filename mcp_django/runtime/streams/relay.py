"""The way of a call's stream to a client that comes back to another worker.

Who serves the client asks, in the event log, for what comes after the last message it has; whose call it is answers
with that, writes through from then on, and stops writing to whoever read before. Each such reader has a topic of its
own, so what was written for an earlier one is never taken for its own. When a process ends it leaves in the log what
its clients have not heard, for whoever serves them next.
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
"""Seconds at the end of the process that clients have to take the ends of their streams."""
LOOKS = 20
RELAY_SILENCE = 3600.0
REPEATED_BYTES = 4 * RING_BYTES
"""Of one stream that are written into the log more than once, which a client has done by asking for the same again at
another worker. Then it is refused there.
"""
ROW_BYTES = 256
"""What a row takes besides its message, about."""


class Endable(Protocol):
    """A stream that somebody reads."""

    def end(self) -> None:
        """Nothing comes after what waits."""


class CallStreams:
    """The streams of calls on one event loop, and who else reads a stream of a session there."""

    def __init__(self, feeds: Feeds, bounds: Callable[[], Bounds], at_end: Callable[[Any], None]) -> None:
        """`at_end` is told what to await when the loop is about to end."""
        self._feeds, self._bounds, self._at_end = feeds, bounds, at_end
        self.rings = Rings(bounds, on_empty=self._part)
        self.own: dict[Any, set[Endable]] = {}
        """The streams that are no call's here, by the primary keys of their sessions."""
        self._attended = False
        self._following: Following | None = None
        self._joining: asyncio.Task[None] | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, session: Session) -> Ring:
        """A new stream of a session, with its first reader."""
        if self._following is None and self._joining is None:
            self._join()
        return self.rings.open(session)

    async def resume(self, session: Session, token: str, after: int) -> "Reader | RemoteReader":
        """A reader of a stream of the session, from after its message `after`. Raises Gone."""
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
        """Is there a stream of the session with this primary key? May be asked from any thread."""
        return session in self.own or self.rings.has(session)

    def end(self, session: Any) -> None:
        """A session is over, and so are its streams."""
        self.rings.end(session)
        for stream in list(self.own.get(session, ())):
            stream.end()

    def keep(self, session: Any, stream: Endable) -> Callable[[], None]:
        """A stream of the session that is no call's is open; returns what says that it is not any more."""
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
            logger.warning("Streams of this process cannot be resumed elsewhere for now", exc_info=True)
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
            logger.warning("A client on another worker could not be told that its call goes on", exc_info=True)

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
            logger.warning("What a call says could not be passed on to its client on another worker", exc_info=True)
            if reader is not None:
                reader.leave()

    async def _keep_for_others(self) -> None:
        """The process ends: what has not been heard waits in the log."""
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
    # As text: a message is sent as it was written, to the byte.
    return [Draft(topic, "message", {"n": n, "text": message.decode()}) for n, message in said]


def _end(topic: str, reader: Reader) -> Draft:
    if reader.retry is not None:
        return Draft(topic, "released", {"retry": reader.retry})
    return Draft(topic, "end")
