"""Handlers for notifications of a server: progress, log messages and changes.

Handlers are synchronous or asynchronous functions. They run on the client's event loop, sequentially and in the order
of the notifications. An exception in a handler is logged and does not affect others.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as types

from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.client")

ListName = Literal["tools", "resources", "prompts"]
"""A list that can change; "resources" includes the resource templates."""
LIST_NAMES: tuple[ListName, ...] = ("tools", "resources", "prompts")
NotificationHandler = Callable[..., Any]
ProgressHandler = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Callback with the progress, the total if known, and an optional message."""
Unsubscribe = Callable[[], None]
Topic = Literal["progress", "log", "list_changed", "resource_updated"]

MAX_QUEUED_NOTIFICATIONS = 1000
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


class NotificationHandlers:
    """The notification handlers of a client, by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[Topic, dict[object, NotificationHandler]] = {}
        self.on_change: Callable[[], None] = _do_nothing
        """Callback for an added or removed handler."""

    def add(self, topic: Topic, handler: NotificationHandler) -> Unsubscribe:
        """Add a handler for a topic and return a function that removes it.

        Duplicates are allowed.
        """
        key, topic_handlers = object(), self._by_topic.setdefault(topic, {})
        topic_handlers[key] = handler
        self.on_change()

        def remove() -> None:
            if topic_handlers.pop(key, None) is not None:
                self.on_change()

        return remove

    def has_handlers(self, *topics: Topic) -> bool:
        """Return True if one of the topics has a handler."""
        return any(self._by_topic.get(topic) for topic in topics)

    async def notify(self, topic: Topic, *values: Any) -> None:
        """Call the handlers of a topic sequentially."""
        for handler in list(self._by_topic.get(topic, {}).values()):
            await call_handler(handler, *values)


class NotificationQueue:
    """Queue of notifications for the handlers, in order; equal changes are merged."""

    def __init__(self, handlers: NotificationHandlers) -> None:
        self._handlers = handlers
        self._queue: deque[tuple[Topic, Any]] = deque()
        self._has_messages = asyncio.Event()
        self._dropped_count = 0

    def put(self, topic: Topic, value: Any) -> None:
        """Queue a notification if its topic has handlers."""
        if not self._handlers.has_handlers(topic):
            return
        # A queued change covers an equal one. Log messages are never merged.
        if topic != "log" and (topic, value) in self._queue:
            return
        if len(self._queue) >= MAX_QUEUED_NOTIFICATIONS:
            self._queue.popleft()
            self._dropped_count += 1
        self._queue.append((topic, value))
        self._has_messages.set()

    async def deliver(self) -> None:
        """Call the handlers for queued notifications, until cancelled."""
        while True:
            await self._has_messages.wait()
            self._has_messages.clear()
            while self._queue:
                topic, value = self._queue.popleft()
                await self._handlers.notify(topic, value)
            if self._dropped_count:
                logger.warning("Notification queue is full: dropped %d messages for slow handlers", self._dropped_count)
                self._dropped_count = 0


@dataclass(slots=True, eq=False)
class ProgressRelay:
    """Progress of one call, passed to its own handler and to the client's handlers.

    While a handler runs, only the latest progress is kept, which bounds the cost of a flood.
    """

    _handlers: NotificationHandlers
    _method: str
    _name: str | None
    _handler: ProgressHandler | None
    _is_running: bool = False
    _latest: tuple[float, float | None, str | None] | None = None

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self._latest = (progress, total, message)
        if self._is_running:
            return
        self._is_running = True
        try:
            while (latest := self._latest) is not None:
                self._latest = None
                await self._notify(*latest)
        finally:
            self._is_running = False

    async def _notify(self, progress: float, total: float | None, message: str | None) -> None:
        if self._handler is not None:
            await call_handler(self._handler, progress, total, message)
        if self._handlers.has_handlers("progress"):
            event = Progress(method=self._method, name=self._name, progress=progress, total=total, message=message)
            await self._handlers.notify("progress", event)


async def call_handler(handler: NotificationHandler, *values: Any) -> None:
    """Call a handler of the project; log its exceptions."""
    try:
        result = handler(*values)
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.exception("Notification handler failed: %r", handler)


def get_change(notification: types.ServerNotification) -> tuple[Topic, str] | None:
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


def _do_nothing() -> None:
    pass
