"""The one door to the channel layer: how a process tells others what it has appended to the log.

A wake carries the events themselves if they are small, so that nobody has to read them. Nothing rests on it: who
misses one reads the log a little later. So what goes wrong here is logged, tried again, and fails nobody.

The layer in memory reaches this process only, where events are handed over without it: it is left alone.
"""

import asyncio
import atexit
import contextvars
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.db import connections, router

from mcp_django.aio.clock import monotonic
from mcp_django.conf import secret_keys
from mcp_django.models import StreamEvent
from mcp_django.protocol.jsonrpc import dumps, loads
from mcp_django.runtime.events.event_log import Event

logger = logging.getLogger("mcp_django.events")

GROUP = "mcp_django.events"
TYPE = "mcp_django.wake"
WAKE_BYTES = 8 * 1024
"""Of payload in one wake. What is larger is read from the log."""
MOST_UNSENT = 1000
"""Events that wait to be sent. Of the rest others learn by the next wake, or when they next look."""
SEND_WITHIN = 2.0
JOIN_EVERY = 30.0
"""Seconds between two times the group is joined: Redis forgets groups when it restarts, and when they are old."""
RETRY = 1.0
COMPLAIN_EVERY = 60.0

Hear = Callable[[Sequence[Event], int], None]
"""Called with the events of a wake and the number up to which there are events."""


class _Complaints:
    """Tells the log of an outage once a minute, not once an event."""

    def __init__(self) -> None:
        self._next = 0.0

    def note(self, what: str) -> None:
        """Log the exception that is being handled."""
        now = monotonic()
        if now >= self._next:
            self._next = now + COMPLAIN_EVERY
            logger.warning("The channel layer failed: %s. Events arrive late until it works", what, exc_info=True)


_complaints = _Complaints()


def find_layer(alias: str | None) -> Any:
    """The channel layer of an alias if it reaches other processes, else None."""
    if not alias:
        return None
    try:
        layer = get_channel_layer(alias)
    except Exception:
        _complaints.note(f'CHANNEL_LAYERS["{alias}"] cannot be made')
        return None
    return None if isinstance(layer, InMemoryChannelLayer) else layer


def group() -> str:
    """Where wakes about the log of this project are sent.

    Projects share a Redis, whose PubSub knows no databases, and mostly the prefix of channels_redis too; but a number
    means nothing in another log. Who cannot be sure to have the same one hears nothing: where processes name a database
    differently, or not all have the new SECRET_KEY yet, they look for themselves.
    """
    settings = connections.databases[router.db_for_write(StreamEvent)]
    log = [str(settings.get(name) or "") for name in ("ENGINE", "HOST", "PORT", "NAME")]
    return f"{GROUP}.{blake2b(dumps([secret_keys()[0], *log]), digest_size=12).hexdigest()}"


class Ear:
    """Hears on one event loop what other processes append."""

    def __init__(self, layer: Any, hear: Hear) -> None:
        self._layer, self._hear, self._group = layer, hear, group()
        self.joined = asyncio.Event()
        """Set when wakes can arrive."""

    async def listen(self) -> None:
        """Until it is cancelled; then the group is left."""
        channel: str | None = None
        joining: asyncio.Task[None] | None = None
        try:
            while True:
                try:
                    if channel is None:
                        channel = await self._layer.new_channel()
                        joining = asyncio.create_task(self._stay_joined(channel))
                    # Without a timeout: layers take a cancelled `receive` for the end of the channel.
                    message = await self._layer.receive(channel)
                except Exception:
                    _complaints.note("it could not be listened to")
                    await asyncio.sleep(RETRY)
                else:
                    self._read(message)
        finally:
            if joining is not None:
                joining.cancel()
            if channel is not None:
                await self._leave(channel)

    async def _stay_joined(self, channel: str) -> None:
        while True:
            try:
                async with asyncio.timeout(SEND_WITHIN):
                    await self._layer.group_add(self._group, channel)
            except Exception:
                _complaints.note("its group could not be joined")
                await asyncio.sleep(RETRY)
            else:
                self.joined.set()
                await asyncio.sleep(JOIN_EVERY)

    async def _leave(self, channel: str) -> None:
        try:
            async with asyncio.timeout(SEND_WITHIN):
                await self._layer.group_discard(self._group, channel)
        except Exception:
            logger.debug("The group of the channel layer could not be left", exc_info=True)

    def _read(self, message: Any) -> None:
        try:
            head = int(message["head"])
            events = [Event(int(seq), topic, kind, loads(payload)) for seq, topic, kind, payload in message["events"]]
        except (KeyError, TypeError, ValueError):
            return  # not one of ours, or of a release to come
        self._hear(events, head)


class Voice:
    """Sends wakes, on the event loop that it is used on; in order, one at a time, as many events in one as fit."""

    def __init__(self, layer: Callable[[], Any], left: Callable[[Sequence[Event]], None] | None = None) -> None:
        """`layer` gives the channel layer, or None; `left` is given what could not be sent because the loop ended."""
        self.layer, self._left = layer, left
        self._unsent: deque[Event] = deque(maxlen=MOST_UNSENT)
        self._task: asyncio.Task[None] | None = None
        self.idle = threading.Event()
        self.idle.set()

    def say(self, events: Sequence[Event]) -> None:
        """Send these soon."""
        self._unsent.extend(events)
        if self._task is None:
            self.idle.clear()
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._send(), context=contextvars.Context())

    async def _send(self) -> None:
        try:
            layer = self.layer()
            while self._unsent and layer is not None:
                message = self._next()
                try:
                    async with asyncio.timeout(SEND_WITHIN):
                        await layer.group_send(group(), message)
                except Exception:
                    _complaints.note("a wake could not be sent")
        except asyncio.CancelledError:
            if self._left is not None and self._unsent:
                self._left(tuple(self._unsent))
            raise
        finally:
            self._unsent.clear()
            self._task = None
            self.idle.set()

    def _next(self) -> dict[str, Any]:
        events: list[tuple[int, str, str, str]] = []
        room, head = WAKE_BYTES, 0
        while self._unsent:
            event = self._unsent[0]
            payload = dumps(event.payload).decode()
            if len(payload) <= WAKE_BYTES:
                room -= len(payload)
                if room < 0:
                    break
                events.append((event.seq, event.topic, event.kind, payload))
            head = max(head, event.seq)
            self._unsent.popleft()
        return {"type": TYPE, "head": head, "events": events}


class Crier:
    """Sends wakes from where there is no event loop that lasts: a request under WSGI, a task of Celery's, a command. It
    has a thread and a loop of its own, from its first use to the end of the process.
    """

    def __init__(self, layer: Callable[[], Any]) -> None:
        self._voice = Voice(layer)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def say(self, events: Sequence[Event]) -> None:
        """Send these soon. Called on any thread."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._start()
            loop = self._loop
            self._voice.idle.clear()
        if loop is not None:
            loop.call_soon_threadsafe(self._voice.say, events)

    def finish(self, within: float = 1.0) -> None:
        """Wait until everything is sent, or so many seconds, and end the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            self._voice.idle.wait(within)
            loop.call_soon_threadsafe(loop.stop)

    def _start(self) -> None:
        if self._pid != os.getpid():
            # After a fork the thread is the parent's.
            self._voice = Voice(self._voice.layer)
            self._pid = os.getpid()
            atexit.register(self.finish)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=(self._loop,), name="mcp-wakes", daemon=True).start()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
