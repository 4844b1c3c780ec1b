"""Routing of POSTs for HTTP+SSE streams (2024-11-05, basic/transports).

A message reaches the client's stream whichever worker receives it. The stream's name contains its event loop. On that
loop the message is delivered directly. On other loops it is appended to the event log under the topic of the stream's
loop. The delivery status is published under the topic of the loop that received the POST. A loop thus has one topic for
its streams and its POSTs.
"""

import asyncio
import contextvars
import enum
import itertools
import logging
import secrets
import threading
import weakref
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, Protocol

from django.db import Error

from mcp_django.aio.clock import monotonic
from mcp_django.runtime.events.event_log import Draft, Event, EventLog
from mcp_django.runtime.events.follower import Following, run_apart
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.server.ports import Executor, Overloaded

logger = logging.getLogger("mcp_django.events")

POST, WITHDRAWN = "post", "withdrawn"
ANSWER_WITHIN = 5.0
"""Maximum seconds for another worker to answer, before the stream counts as gone.

Without wake-ups an answer takes two polls of the log, a second each.
"""
DOUBTED_FOR = 5.0
"""Seconds for which messages to a stream of an unresponsive worker are rejected."""
MOST_REMEMBERED = 10_000
"""Maximum number of streams that are remembered as gone."""
LOOK_EVERY = 30.0
"""Seconds between two checks whether the subscription is still needed."""
UNBLANKED, UNBLANKED_ROWS = 256 * 1024, 500
"""Maximum bytes and rows of delivered messages that remain in the log."""


class Fate(enum.StrEnum):
    """Delivery status of a message."""

    TAKEN = "taken"
    GONE = "gone"
    """The stream does not exist, or has ended."""
    REFUSED = "refused"
    """The sender has no access to the stream."""
    BUSY = "busy"
    """The client must read more of its stream before sending."""


class Inlet(Protocol):
    """Receiving side of a stream."""

    async def take(self, body: bytes, scopes: frozenset[str]) -> Fate:
        """Receive a message from a sender with these scopes; never block or raise."""


class Posts:
    """Router of one event loop: its streams, and POSTs for any stream."""

    def __init__(self, feeds: Feeds, executor: Executor) -> None:
        """Create the router; `executor` has the threads of the event log."""
        self._feeds, self._executor = feeds, executor
        self.name = secrets.token_urlsafe(9)

        self._streams: dict[str, Inlet] = {}
        self._asked: dict[int, asyncio.Future[Fate]] = {}
        self._taking: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._numbers = itertools.count()
        self._gone: OrderedDict[str, float] = OrderedDict()
        """Stream → monotonic time until which it counts as gone."""

        self._answers: list[Draft] = []
        self._answering: asyncio.Task[None] | None = None
        self._following: Following | None = None
        self._joining: asyncio.Task[None] | None = None

        self._used = 0.0
        self._spent: list[int] = []
        self._spent_bytes = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def add(self, inlet: Inlet) -> str:
        """Register a stream and return its name, which is valid on every worker.

        Raises:
            Overloaded: the event log is unavailable.
        """
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                await self._attend()
        except (Error, TimeoutError) as problem:
            raise _down(problem) from None
        name = f"{self.name}.{secrets.token_urlsafe(12)}"
        self._streams[name] = inlet
        return name

    def discard(self, name: str) -> None:
        """Remove an ended stream."""
        self._streams.pop(name, None)

    async def post(self, stream: str, body: bytes, scopes: frozenset[str]) -> Fate:
        """Deliver a UTF-8 message to a stream that was added on any worker.

        Raises:
            Overloaded: the event log is unavailable.
        """
        inlet = self._streams.get(stream)
        if inlet is not None:
            return await inlet.take(body, scopes)
        whose = stream.partition(".")[0]
        if whose == self.name or self._gone.get(stream, 0.0) > monotonic():
            return Fate.GONE
        return await self._forward(whose, stream, body, scopes)

    async def _forward(self, whose: str, stream: str, body: bytes, scopes: frozenset[str]) -> Fate:
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        said = {"stream": stream, "from": self.name, "n": number, "scopes": sorted(scopes), "text": body.decode()}
        writing: asyncio.Task[list[Event]] | None = None
        self._asked[number] = answer

        try:
            async with asyncio.timeout(ANSWER_WITHIN) as patience:
                await self._attend()
                # Shield the write from cancellation: its events must be known to be withdrawn.
                writing = self._spawn(self._feeds.publish(Draft(_topic(whose), POST, said)))
                await asyncio.shield(writing)
                # Restart the timeout: a large message takes long to write, independently of the other worker.
                patience.reschedule(asyncio.get_running_loop().time() + ANSWER_WITHIN)
                fate: Fate = await answer
        except Error as problem:
            raise _down(problem) from None
        except TimeoutError as problem:
            if writing is None:
                raise _down(problem) from None
            written = writing.done()
            self._spawn(self._withdraw(whose, number, writing, len(body)))
            if not written:
                raise _down(problem) from None
            self._remember(stream, monotonic() + DOUBTED_FOR)
            return Fate.GONE
        finally:
            del self._asked[number]

        self._blank(writing.result(), len(body))
        if fate is Fate.GONE:
            self._remember(stream, float("inf"))
        return fate

    async def _withdraw(self, whose: str, number: int, writing: "asyncio.Task[list[Event]]", size: int) -> None:
        """Withdraw a message after a timeout, so that a slow worker does not process it."""
        try:
            written = await writing
            await self._feeds.publish(Draft(_topic(whose), WITHDRAWN, {"from": self.name, "n": number}))
        except Error:
            return  # the message is not in the log
        self._blank(written, size)

    def _remember(self, stream: str, until: float) -> None:
        self._gone[stream] = until
        if len(self._gone) > MOST_REMEMBERED:
            self._gone.popitem(last=False)

    def _blank(self, written: list[Event], size: int) -> None:
        """Clear the payloads of delivered messages in batches.

        The rows must stay, because numbers have no gaps, but a message may have megabytes.
        """
        self._spent += [event.seq for event in written]
        self._spent_bytes += size
        if self._spent_bytes >= UNBLANKED or len(self._spent) >= UNBLANKED_ROWS:
            spent, self._spent, self._spent_bytes = self._spent, [], 0
            self._spawn(self._take_out(spent))

    async def _take_out(self, spent: list[int]) -> None:
        try:
            await run_apart(self._executor, EventLog().blank, spent)
        except Error:
            logger.warning(
                "Failed to clear delivered messages; they stay in the event log until they expire", exc_info=True
            )

    async def _attend(self) -> None:
        """Ensure that this loop's topic is subscribed.

        Raises:
            django.db.Error: the event log is unavailable.
        """
        self._used = monotonic()
        if self._following is not None and self._feeds.here().active:
            return
        if self._joining is None:
            self._joining = self._spawn(self._join())
        await asyncio.shield(self._joining)

    async def _join(self) -> None:
        earlier, self._following = self._following, None
        if earlier is not None:
            earlier.stop()  # its follower has stopped
        try:
            self._following = await self._feeds.here().follow(_topic(self.name), self._hear)
        finally:
            self._joining = None
        if earlier is None:
            self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_EVERY, self._look, context=contextvars.Context())

    def _look(self) -> None:
        if self._streams or self._asked or monotonic() - self._used < LOOK_EVERY:
            self._look_later()
            return
        following, self._following = self._following, None
        if following is not None:
            following.stop()

    def _hear(self, event: Event) -> None:
        said = event.payload
        if said is None:
            return  # cleared, so the sender no longer waits for an answer

        if event.kind == POST:
            key = said["from"], said["n"]
            self._taking[key] = self._spawn(self._take(key, said))
        elif event.kind == WITHDRAWN:
            taking = self._taking.pop((said["from"], said["n"]), None)
            if taking is not None:
                taking.cancel()
        else:
            answer = self._asked.get(said["n"])
            if answer is not None and not answer.done():
                answer.set_result(Fate(event.kind))

    async def _take(self, key: tuple[str, int], said: dict[str, Any]) -> None:
        try:
            inlet = self._streams.get(said["stream"])
            fate = Fate.GONE
            if inlet is not None:
                fate = await inlet.take(said["text"].encode(), frozenset(said["scopes"]))
            self._answers.append(Draft(_topic(key[0]), fate, {"n": key[1]}))
            if self._answering is None:
                self._answering = self._spawn(self._answer())
        finally:
            self._taking.pop(key, None)

    async def _answer(self) -> None:
        """Publish the waiting answers in batches, one after the other."""
        try:
            while self._answers:
                answers, self._answers = self._answers, []
                try:
                    await self._feeds.publish(*answers)
                except Error:
                    logger.warning("Failed to publish the delivery status of messages", exc_info=True)
        finally:
            self._answering = None

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        # In a clean context: an event's context is that of its publisher.
        task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, Error):
            logger.error("Failed to process a message for a stream", exc_info=problem)


class ProcessPosts:
    """Routers of a process, one for each event loop.

    A stream belongs to the loop that serves it. Other loops treat it like a stream of another process.
    """

    def __init__(self, feeds: Feeds, executor: Executor) -> None:
        self._feeds, self._executor = feeds, executor
        self._lock = threading.Lock()
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Posts] = weakref.WeakKeyDictionary()

    def here(self) -> Posts:
        """Return the router of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._loops.get(loop)
            if found is None:
                found = self._loops[loop] = Posts(self._feeds, self._executor)
        return found


def _topic(whose: str) -> str:
    return f"posts:{whose}"


def _down(problem: BaseException) -> Overloaded:
    logger.warning("Failed to forward a message to the stream of another worker", exc_info=problem)
    return Overloaded("The event log is unavailable; try again later")
