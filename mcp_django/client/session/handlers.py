"""Who is told what a server says by itself: progress, log messages and changes.

Handlers are plain functions or coroutine functions. They run on the client's event loop, one after another and in the
order of what they are told; a handler that raises is logged and stops nothing.
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
"""A list that may change; that of the resources includes the templates."""
KINDS: tuple[Kind, ...] = ("tools", "resources", "prompts")
Handler = Callable[..., Any]
ProgressHandler = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Takes what is done, what there is to do if that is known, and a message, if any."""
Unsubscribe = Callable[[], None]
Topic = Literal["progress", "log", "list_changed", "resource_updated"]

MAX_WAITING = 1000
"""Messages that wait for slow handlers; beyond that the oldest are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a call is, as handlers of the whole client are told."""

    method: str
    """The method of the call: `tools/call`, …"""
    name: str | None
    """The tool or prompt that was called, or the URI that is read."""
    progress: float
    """What is done; it grows."""
    total: float | None
    """What there is to do, where that is known."""
    message: str | None
    """What is being done, in words."""


class Listeners:
    """The handlers of a client, by what they want to be told."""

    def __init__(self) -> None:
        self._by_topic: dict[Topic, dict[object, Handler]] = {}
        self.changed: Callable[[], None] = _nothing
        """Called when a handler comes or goes."""

    def add(self, topic: Topic, handler: Handler) -> Unsubscribe:
        """Tell `handler` from now on, until what is returned is called. The same handler may be added twice."""
        key, those = object(), self._by_topic.setdefault(topic, {})
        those[key] = handler
        self.changed()

        def remove() -> None:
            if those.pop(key, None) is not None:
                self.changed()

        return remove

    def wants(self, *topics: Topic) -> bool:
        """Is there a handler for one of these?"""
        return any(self._by_topic.get(topic) for topic in topics)

    async def tell(self, topic: Topic, *values: Any) -> None:
        """Call the handlers of a topic, one after another."""
        for handler in list(self._by_topic.get(topic, {}).values()):
            await call(handler, *values)


class Mailbox:
    """What a server said and handlers were not told yet, in order; changes of the same thing are one message."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._waiting: deque[tuple[Topic, Any]] = deque()
        self._arrived = asyncio.Event()
        self._dropped = 0

    def put(self, topic: Topic, value: Any) -> None:
        """Keep a message until the handlers have time, if there are any."""
        if not self._listeners.wants(topic):
            return
        # A change that waits already says all that this one does. Log messages are never the same.
        if topic != "log" and (topic, value) in self._waiting:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append((topic, value))
        self._arrived.set()

    async def deliver(self) -> None:
        """Tell the handlers, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                topic, value = self._waiting.popleft()
                await self._listeners.tell(topic, value)
            if self._dropped:
                logger.warning("Handlers are slower than the server: %d of its messages were dropped", self._dropped)
                self._dropped = 0


class ProgressRelay:
    """The progress of one call, told to its own handler and to the client's.

    While a handler is busy only the newest is kept, so that a server that floods costs nothing.
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
    """Call a handler of a project, whatever it does."""
    try:
        result = handler(*values)
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.exception("A handler of what an MCP server says failed: %r", handler)


def change_of(notification: types.ServerNotification) -> tuple[Topic, str] | None:
    """What a notification says has changed: a list, or the resource at a URI."""
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
