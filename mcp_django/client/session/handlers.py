"""Handlers for notifications of a server: progress, log messages and changes.

Handlers are synchronous or asynchronous functions. They run on the client's event loop, sequentially and in the order
of the notifications. An exception in a handler is logged and does not affect others.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as types

logger = logging.getLogger("mcp_django.client")

Kind = Literal["tools", "resources", "prompts"]
"""A list that can change; "resources" includes the resource templates."""
KINDS: tuple[Kind, ...] = ("tools", "resources", "prompts")
Handler = Callable[..., Any]
ProgressHandler = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Callback with the progress, the total if known, and an optional message."""
Unsubscribe = Callable[[], None]
Topic = Literal["progress", "log", "list_changed", "resource_updated"]

MAX_WAITING = 1000
"""Maximum number of notifications queued for slow handlers.

Beyond it the oldest are dropped.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a call, as passed to the client's own handlers."""

    method: str
    """The method of the call: `tools/call`, …"""
    name: str | None
    """The called tool or prompt, or the URI of the resource."""
    progress: float
    """The current progress, which increases."""
    total: float | None
    """The progress at completion, if known."""
    message: str | None
    """A description of the current step."""


class Listeners:
    """The notification handlers of a client, by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[Topic, dict[object, Handler]] = {}
        self.changed: Callable[[], None] = _nothing
        """Callback for an added or removed handler."""

    def add(self, topic: Topic, handler: Handler) -> Unsubscribe:
        """Add a handler for a topic and return a function that removes it.

        Duplicates are allowed.
        """
        key, those = object(), self._by_topic.setdefault(topic, {})
        those[key] = handler
        self.changed()

        def remove() -> None:
            if those.pop(key, None) is not None:
                self.changed()

        return remove

    def wants(self, *topics: Topic) -> bool:
        """Return True if one of the topics has a handler."""
        return any(self._by_topic.get(topic) for topic in topics)

    async def tell(self, topic: Topic, *values: Any) -> None:
        """Call the handlers of a topic sequentially."""
        for handler in list(self._by_topic.get(topic, {}).values()):
            await call(handler, *values)


class Mailbox:
    """Queue of notifications for the handlers, in order; equal changes are merged."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._waiting: deque[tuple[Topic, Any]] = deque()
        self._arrived = asyncio.Event()
        self._dropped = 0

    def put(self, topic: Topic, value: Any) -> None:
        """Queue a notification if its topic has handlers."""
        if not self._listeners.wants(topic):
            return
        # A queued change covers an equal one. Log messages are never merged.
        if topic != "log" and (topic, value) in self._waiting:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append((topic, value))
        self._arrived.set()

    async def deliver(self) -> None:
        """Call the handlers for queued notifications, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                topic, value = self._waiting.popleft()
                await self._listeners.tell(topic, value)
            if self._dropped:
                logger.warning("Notification queue is full: dropped %d messages for slow handlers", self._dropped)
                self._dropped = 0


class ProgressRelay:
    """Progress of one call, passed to its own handler and to the client's handlers.

    While a handler runs, only the latest progress is kept, which bounds the cost of a flood.
    """

    def __init__(self, listeners: Listeners, method: str, name: str | None, handler: ProgressHandler | None) -> None:
        self._listeners, self._method, self._name, self._handler = listeners, method, name, handler
        self._busy = False
        self._newest: tuple[float, float | None, str | None] | None = None

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self._newest = (progress, total, message)
        if self._busy:
            return
        self._busy = True
        try:
            while (newest := self._newest) is not None:
                self._newest = None
                await self._tell(*newest)
        finally:
            self._busy = False

    async def _tell(self, progress: float, total: float | None, message: str | None) -> None:
        if self._handler is not None:
            await call(self._handler, progress, total, message)
        if self._listeners.wants("progress"):
            told = Progress(method=self._method, name=self._name, progress=progress, total=total, message=message)
            await self._listeners.tell("progress", told)


async def call(handler: Handler, *values: Any) -> None:
    """Call a handler of the project; log its exceptions."""
    try:
        result = handler(*values)
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.exception("Notification handler failed: %r", handler)


def change_of(notification: types.ServerNotification) -> tuple[Topic, str] | None:
    """Return the topic and value of a change: a list's name or a resource's URI."""
    match notification:
        case types.ToolListChangedNotification():
            return "list_changed", "tools"
        case types.PromptListChangedNotification():
            return "list_changed", "prompts"
        case types.ResourceListChangedNotification():
            return "list_changed", "resources"
        case types.ResourceUpdatedNotification(params=params):
            return "resource_updated", params.uri
    return None


def _nothing() -> None:
    pass
