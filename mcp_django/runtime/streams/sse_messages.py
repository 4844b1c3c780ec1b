"""The POSTs of HTTP+SSE (2024-11-05, basic/transports): whichever worker gets one, its message comes to the client's
stream.

The name of a stream says which event loop has it. On that loop the message is handed over; elsewhere it is appended to
the event log under the topic of that loop, and what became of it comes back under the topic of the loop that has the
POST. So a loop follows one topic, for its streams and for its POSTs.
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
"""Seconds in which another worker has to say what became of a message. Then the stream counts as gone with its worker.
Where no wake comes, an answer takes two looks at the log, a second each.
"""
DOUBTED_FOR = 5.0
"""Seconds for which a stream whose worker said nothing is not asked for again."""
MOST_REMEMBERED = 10_000
"""Streams that are known to be gone."""
LOOK_EVERY = 30.0
"""Seconds between two looks whether following is still needed."""
UNBLANKED, UNBLANKED_ROWS = 256 * 1024, 500
"""Bytes, and rows, of messages that stay in the log although they have been taken."""


class Fate(enum.StrEnum):
    """What became of a message."""

    TAKEN = "taken"
    GONE = "gone"
    """There is no such stream, or not any more."""
    REFUSED = "refused"
    """The stream is not for whoever sent it."""
    BUSY = "busy"
    """The client has not read enough of its stream to send more."""


class Inlet(Protocol):
    """A stream, as far as messages come in."""

    async def take(self, body: bytes, scopes: frozenset[str]) -> Fate:
        """Take a message, sent by somebody with these scopes. Ends soon, and raises nothing."""


class Posts:
    """The streams of one event loop, and the POSTs that it has got, for any stream."""

    def __init__(self, feeds: Feeds, executor: Executor) -> None:
        """`executor` has the lanes of the log."""
        self._feeds, self._executor = feeds, executor
        self.name = secrets.token_urlsafe(9)
        self._streams: dict[str, Inlet] = {}
        self._asked: dict[int, asyncio.Future[Fate]] = {}
        self._taking: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._numbers = itertools.count()
        self._gone: OrderedDict[str, float] = OrderedDict()
        """Stream → until when that is believed, on the monotonic clock."""
        self._answers: list[Draft] = []
        self._answering: asyncio.Task[None] | None = None
        self._following: Following | None = None
        self._joining: asyncio.Task[None] | None = None
        self._used = 0.0
        self._spent: list[int] = []
        self._spent_bytes = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def add(self, inlet: Inlet) -> str:
        """The name of a new stream, which messages reach from now on, whichever worker gets them. Raises Overloaded."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                await self._attend()
        except (Error, TimeoutError) as problem:
            raise _down(problem) from None
        name = f"{self.name}.{secrets.token_urlsafe(12)}"
        self._streams[name] = inlet
        return name

    def discard(self, name: str) -> None:
        """The stream is over."""
        self._streams.pop(name, None)

    async def post(self, stream: str, body: bytes, scopes: frozenset[str]) -> Fate:
        """Bring a message, UTF-8, to the stream of a name that `add` gave on some worker. Raises Overloaded when the
        log does not serve.
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
                # To its end, whoever leaves meanwhile: only then is known what is to be taken back.
                writing = self._spawn(self._feeds.publish(Draft(_topic(whose), POST, said)))
                await asyncio.shield(writing)
                # What is large takes a while to write, which says nothing of the other worker.
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
        """Nobody waits for the answer any more: a worker that was only slow is not to act on the message."""
        try:
            written = await writing
            await self._feeds.publish(Draft(_topic(whose), WITHDRAWN, {"from": self.name, "n": number}))
        except Error:
            return  # it is not in the log
        self._blank(written, size)

    def _remember(self, stream: str, until: float) -> None:
        self._gone[stream] = until
        if len(self._gone) > MOST_REMEMBERED:
            self._gone.popitem(last=False)

    def _blank(self, written: list[Event], size: int) -> None:
        """Take messages that were heard out of the log now and then: a row has to stay, because numbers have no gaps,
        but a client may send megabytes at a time.
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
            logger.warning("Messages that were heard stay in the event log until they are too old", exc_info=True)

    async def _attend(self) -> None:
        """Have this loop's topic followed. Raises django.db.Error."""
        self._used = monotonic()
        if self._following is not None and self._feeds.here().active:
            return
        if self._joining is None:
            self._joining = self._spawn(self._join())
        await asyncio.shield(self._joining)

    async def _join(self) -> None:
        earlier, self._following = self._following, None
        if earlier is not None:
            earlier.stop()  # its feed has ended
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
            return  # blanked, so nobody waits for an answer
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
        """As many at once as there are: the log takes them one after the other."""
        try:
            while self._answers:
                answers, self._answers = self._answers, []
                try:
                    await self._feeds.publish(*answers)
                except Error:
                    logger.warning("Other workers could not be told that messages were taken", exc_info=True)
        finally:
            self._answering = None

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        # In a clean context: that of an event is of whoever appended it.
        task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, Error):
            logger.error("A message for a stream failed", exc_info=problem)


class ProcessPosts:
    """There is one for a process. A stream belongs to the loop that serves it; to other loops it is another's."""

    def __init__(self, feeds: Feeds, executor: Executor) -> None:
        self._feeds, self._executor = feeds, executor
        self._lock = threading.Lock()
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Posts] = weakref.WeakKeyDictionary()

    def here(self) -> Posts:
        """Those of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._loops.get(loop)
            if found is None:
                found = self._loops[loop] = Posts(self._feeds, self._executor)
        return found


def _topic(whose: str) -> str:
    return f"posts:{whose}"


def _down(problem: BaseException) -> Overloaded:
    logger.warning("A message for a stream of another worker could not be passed on", exc_info=problem)
    return Overloaded("The event log does not answer; try again later")
