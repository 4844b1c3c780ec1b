"""The way of a call's stream to a client that comes back to another worker.

Who serves the client asks, in the event log, for what comes after the last message it has; whose call it is answers
with that, writes through from then on, and stops writing to whoever read before. Each such reader has a topic of its
own, so what was written for an earlier one is never taken for its own. When a process ends it leaves in the log what
its clients have not heard, for whoever serves them next.
"""

import asyncio
import contextvars
import logging
import secrets
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from ..server.session import Session
from .events import Draft, Event
from .feed import Feeds, Following
from .rings import Bounds, Reader, Ring, Rings, Said

logger = logging.getLogger("mcp_django.events")

CONTROL = "streams"
"""The topic that every process with calls on streams follows: attach and detach."""
ASK_EVERY, ASKS = 1.0, 3
"""Seconds between asking whose call it is, and how often. Without an answer the call is gone with its worker."""
DOUBT, GIVE_UP = 30.0, 60.0
"""Seconds without a word from whose call it is after which it is asked again, and taken for gone."""
LAST_READ = 1.0
"""Seconds at the end of the process that clients have to take the ends of their streams."""
LOOKS = 20
RELAY_SILENCE = 3600.0


class Gone(Exception):
    """The stream, or what the client has missed of it, is not remembered."""


class CallStreams:
    """The streams of calls on one event loop."""

    def __init__(self, feeds: Feeds, bounds: Callable[[], Bounds], at_end: Callable[[Any], None]) -> None:
        """`at_end` is told what to await when the loop is about to end."""
        self._feeds, self._bounds, self._at_end = feeds, bounds, at_end
        self.rings = Rings(bounds, on_empty=self._part)
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
            await self._feeds.publish(Draft(_topic(ring.session, ring.token, name), "attached"))
        except Exception:
            logger.warning("A client on another worker could not be told that its call goes on", exc_info=True)

    async def _relay(self, ring: Ring, name: str, after: int) -> None:
        topic, reader = _topic(ring.session, ring.token, name), ring.attach(after, relayed=name)
        try:
            if reader is None:
                await self._feeds.publish(Draft(topic, "dropped"))
                return
            await self._feeds.publish(Draft(topic, "attached"))
            while (said := await reader.read(RELAY_SILENCE)) is not None:
                if said:
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
            topic = _topic(ring.session, ring.token)
            said = ring.since(ring.first - 1)
            drafts = [Draft(topic, "kept", {"first": ring.first}), *_drafts(topic, said)]
            await self._feeds.publish(*drafts, Draft(topic, "end"))
            self.rings.drop(ring)


class RemoteReader:
    """A place on the stream of a call that another worker has, or had."""

    def __init__(self, feeds: Feeds, spawn: Callable[[Coroutine[Any, Any, None]], object], most: int) -> None:
        self._feeds, self._spawn, self._most = feeds, spawn, most
        self.position = 0
        self.retry: float | None = None
        self._last = 0
        self._waiting: list[Said] = []
        self._over = False
        self._asks: Draft | None = None
        self._followings: list[Following] = []
        self._accepted = self._refused = False
        self._news = asyncio.Event()
        self._heard = monotonic()

    async def open(self, session: Any, token: str, after: int) -> None:
        """Find whoever has the stream. Raises Gone when nobody has, or not from there on."""
        self.position = self._last = after
        feed, name = self._feeds.here(), secrets.token_urlsafe(9)
        try:
            self._followings.append(await feed.follow(_topic(session, token), self._on_event, after=0))
            if not self._is_decided():
                self._followings.append(await feed.follow(_topic(session, token, name), self._on_event))
                wanted = {"session": session, "stream": token, "after": after, "reader": name}
                self._asks = Draft(CONTROL, "attach", wanted)
                await self._ask(self._asks)
            if not self._accepted:
                raise Gone
        except BaseException:
            self.leave()
            raise

    async def _ask(self, draft: Draft) -> None:
        for _ in range(ASKS):
            await self._feeds.publish(draft)
            try:
                async with asyncio.timeout(ASK_EVERY):
                    while not self._is_decided():
                        self._news.clear()
                        await self._news.wait()
                    return
            except TimeoutError:
                continue

    def _is_decided(self) -> bool:
        return self._accepted or self._refused

    async def read(self, patience: float) -> list[Said] | None:
        """What waits; an empty list after `patience` seconds of silence; None at the end."""
        if not self._waiting and not self._over:
            self._news.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._news.wait()
            except TimeoutError:
                self._doubt()
        if not self._waiting:
            return None if self._over else []
        said, self._waiting = self._waiting, []
        self.position = said[-1].n
        return said

    def _doubt(self) -> None:
        """Whose call it is may have been killed: ask, and end after a while, so that the client asks as well."""
        silence = monotonic() - self._heard
        if silence > GIVE_UP:
            self._over = True
        elif silence > DOUBT and self._asks is not None:
            self._spawn(self._tell(self._asks))

    def leave(self) -> None:
        """Nobody reads here any more."""
        followings, self._followings = self._followings, []
        for following in followings:
            following.stop()
        asked, self._asks = self._asks, None
        if asked is not None and self._accepted and not self._over:
            self._spawn(self._tell(asked._replace(kind="detach")))
        self.end()

    def end(self) -> None:
        """Nothing comes after what waits."""
        self._over = True
        self._news.set()

    async def _tell(self, draft: Draft) -> None:
        try:
            await self._feeds.publish(draft)
        except Exception:
            logger.warning("Whose call it is could not be told of a client on another worker", exc_info=True)

    def _on_event(self, event: Event) -> None:
        self._heard = monotonic()
        match event.kind:
            case "attached":
                self._accepted = True
            case "kept":
                # From a process that has ended; until then it may have answered by itself.
                fits = event.payload["first"] - 1 <= self.position
                self._accepted, self._refused = self._accepted or fits, self._refused or not fits
            case "dropped":
                self._refused = True
            case "message":
                self._take(event.payload["n"], event.payload["text"].encode())
            case "released":
                self.retry, self._over = event.payload["retry"], True
            case "end":
                self._over = True
        self._news.set()

    def _take(self, n: int, message: bytes) -> None:
        if self._accepted and not self._over and n == self._last + 1:
            self._last = n
            self._waiting.append(Said(n, message))
            if len(self._waiting) >= self._most:
                self._over = True  # the client is behind; it can come back for the rest


def _topic(session: Any, token: str, reader: str | None = None) -> str:
    return f"stream:{session}:{token}" if reader is None else f"stream:{session}:{token}:{reader}"


def _drafts(topic: str, said: list[Said]) -> list[Draft]:
    # As text: a message is sent as it was written, to the byte.
    return [Draft(topic, "message", {"n": n, "text": message.decode()}) for n, message in said]


def _end(topic: str, reader: Reader) -> Draft:
    if reader.retry is not None:
        return Draft(topic, "released", {"retry": reader.retry})
    return Draft(topic, "end")
