"""Channel layer access: wake-ups notify other processes of appended events.

A wake-up contains the events themselves if they are small, which saves a query. Delivery does not depend on wake-ups: a
process that misses one reads the log a little later. Errors of the layer are therefore logged and retried, and never
raised to callers.

The in-memory layer is not used: it reaches this process only, and here events are passed on directly.
"""

import asyncio
import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.db import connections, router

from mcp_django.aio.tasks import start_task
from mcp_django.conf import secret_keys
from mcp_django.logs.records import RateLimitedLogger
from mcp_django.models import StreamEvent
from mcp_django.protocol.jsonrpc import dumps, loads
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.event_log import Event

logger = get_logger("mcp_django.events")

GROUP_PREFIX = "mcp_django.events"
WAKE_TYPE = "mcp_django.wake"
MAX_WAKE_BYTES = 8 * 1024
"""Maximum bytes of payload in a wake-up; larger payloads are read from the log."""
MAX_UNSENT_EVENTS = 1000
"""Maximum number of events waiting to be sent.

Other processes detect the rest by the next wake-up or poll.
"""
SEND_TIMEOUT_SECONDS = 2.0
JOIN_INTERVAL_SECONDS = 30.0
"""Seconds between two joins of the group.

Redis drops groups when it restarts, and when they expire.
"""
RETRY_SECONDS = 1.0

WakeHandler = Callable[[Sequence[Event], int], None]
"""Callback for the events of a wake-up and the number of the latest event."""


_failure_logger = RateLimitedLogger(logger)


def _log_failure(action: str) -> None:
    """Log that the layer cannot do `action`, with the current exception."""
    text = "Channel layer failed: cannot %s. Events are delayed until it works again"
    _failure_logger.log(logging.WARNING, text, action, exc_info=True)


def find_channel_layer(alias: str | None) -> Any:
    """Return the channel layer of an alias if it reaches other processes, else None."""
    if not alias:
        return None
    try:
        layer = get_channel_layer(alias)
    except Exception:
        _log_failure(f'create CHANNEL_LAYERS["{alias}"]')
        return None
    return None if isinstance(layer, InMemoryChannelLayer) else layer


def get_group_name() -> str:
    """Return the group that receives wake-ups of this project's event log.

    Projects may share a Redis, whose PubSub ignores databases, and often the prefix of channels_redis. An event number
    is valid in one log only, so the name contains a digest of the database settings and the first secret. Processes
    with other settings, or without the new SECRET_KEY yet, receive no wake-ups and poll the log instead.
    """
    settings = connections.databases[router.db_for_write(StreamEvent)]
    log = [str(settings.get(name) or "") for name in ("ENGINE", "HOST", "PORT", "NAME")]
    return f"{GROUP_PREFIX}.{blake2b(dumps([secret_keys()[0], *log]), digest_size=12).hexdigest()}"


@dataclass(eq=False, repr=False)
class WakeSubscriber:
    """Receiver of wake-ups on one event loop."""

    layer: Any
    handler: WakeHandler
    group: str = field(default_factory=get_group_name)
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set as soon as wake-ups can arrive."""

    async def run(self) -> None:
        """Receive wake-ups until cancelled; then leave the group."""
        channel: str | None = None
        joining: asyncio.Task[None] | None = None

        try:
            while True:
                try:
                    if channel is None:
                        channel = await self.layer.new_channel()
                        joining = asyncio.create_task(self._keep_joined(channel))
                    # No timeout: layers treat a cancelled `receive` as the end of the channel.
                    message = await self.layer.receive(channel)
                except Exception:
                    _log_failure("receive")
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    self._handle_message(message)
        finally:
            if joining is not None:
                joining.cancel()
            if channel is not None:
                await self._leave_group(channel)

    async def _keep_joined(self, channel: str) -> None:
        while True:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                    await self.layer.group_add(self.group, channel)
            except Exception:
                _log_failure("join its group")
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.joined.set()
                await asyncio.sleep(JOIN_INTERVAL_SECONDS)

    async def _leave_group(self, channel: str) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                await self.layer.group_discard(self.group, channel)
        except Exception:
            logger.debug("Failed to leave the group of the channel layer", exc_info=True)

    def _handle_message(self, message: Any) -> None:
        try:
            head = int(message["head"])
            events = [Event(int(seq), topic, kind, loads(payload)) for seq, topic, kind, payload in message["events"]]
        except (KeyError, TypeError, ValueError):
            return  # sent by a foreign or a newer release
        self.handler(events, head)


class WakePublisher:
    """Sender of wake-ups on one event loop.

    Wake-ups are sent in order, one at a time, each with as many events as fit.
    """

    def __init__(self, layer: Any, on_unsent: Callable[[Sequence[Event]], None] | None = None) -> None:
        """Create the sender for a channel layer, or for None.

        `on_unsent` is called with the events that were not sent because the loop ended.
        """
        self.layer = layer
        self._on_unsent = on_unsent
        self._unsent: deque[Event] = deque(maxlen=MAX_UNSENT_EVENTS)
        self._task: asyncio.Task[None] | None = None
        self.idle = threading.Event()
        self.idle.set()

    def publish(self, events: Sequence[Event]) -> None:
        """Send a wake-up for these events soon."""
        self._unsent.extend(events)
        if self._task is None:
            self.idle.clear()
            self._task = start_task(self._send_wakes())

    async def _send_wakes(self) -> None:
        try:
            layer = self.layer
            while self._unsent and layer is not None:
                message = self._build_wake()
                try:
                    async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                        await layer.group_send(get_group_name(), message)
                except Exception:
                    _log_failure("send a wake-up")
        except asyncio.CancelledError:
            if self._on_unsent is not None and self._unsent:
                self._on_unsent(tuple(self._unsent))
            raise
        finally:
            self._unsent.clear()
            self._task = None
            self.idle.set()

    def _build_wake(self) -> dict[str, Any]:
        events: list[tuple[int, str, str, str]] = []
        remaining_bytes, head = MAX_WAKE_BYTES, 0
        while self._unsent:
            event = self._unsent[0]
            payload = dumps(event.payload).decode()
            if len(payload) <= MAX_WAKE_BYTES:
                remaining_bytes -= len(payload)
                if remaining_bytes < 0:
                    break
                events.append((event.seq, event.topic, event.kind, payload))
            head = max(head, event.seq)
            self._unsent.popleft()
        return {"type": WAKE_TYPE, "head": head, "events": events}


class ThreadedWakePublisher:
    """Sender of wake-ups from code without a long-lived event loop.

    For requests under WSGI, Celery tasks and commands. It has a thread and a loop of its own, from its first use to the
    end of the process.
    """

    def __init__(self, layer: Any) -> None:
        self._publisher = WakePublisher(layer)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def set_layer(self, layer: Any) -> None:
        """Send further wake-ups over `layer`."""
        self._publisher.layer = layer

    def publish(self, events: Sequence[Event]) -> None:
        """Send a wake-up for these events soon. Thread-safe."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._start_thread()
            loop = self._loop
            self._publisher.idle.clear()
        if loop is not None:
            loop.call_soon_threadsafe(self._publisher.publish, events)

    def close(self, timeout: float = 1.0) -> None:
        """Wait until all events are sent, at most `timeout` seconds, and stop the thread."""
        with self._lock:
            loop = self._loop
            self._loop = None
        if loop is not None and self._pid == os.getpid():
            self._publisher.idle.wait(timeout)
            loop.call_soon_threadsafe(loop.stop)

    def _start_thread(self) -> None:
        if self._pid != os.getpid():
            # After a fork the thread exists in the parent only.
            self._publisher = WakePublisher(self._publisher.layer)
            self._pid = os.getpid()
            atexit.register(self.close)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_run_loop, args=(self._loop,), name="mcp-wakes", daemon=True).start()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
