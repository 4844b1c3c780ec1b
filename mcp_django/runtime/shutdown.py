"""How a process that serves calls comes to its end: no new calls, running ones finish or are told why not, lifespans
are left, lanes end, and only then is the server let go where it would not wait by itself.

What the servers do on SIGTERM, as their sources say:

- uvicorn, also as gunicorn's worker (`uvicorn/server.py`): `signal.signal` in `capture_signals`. It closes its sockets,
  waits for connections and tasks, without a bound unless `timeout_graceful_shutdown` gives one, and sends
  lifespan.shutdown. Then it raises the signal again under the old handler: with SIG_DFL the process is gone before
  `asyncio.run` has cancelled what is left. WebSockets it does not wait for: it closes each with 1012 at once
  (`uvicorn/protocols/websockets/`, `shutdown`).
- granian (`granian/_signals.py`, `server/mp.py`): `loop.add_signal_handler` in each worker process. It waits for
  connections, sends lifespan.shutdown and cancels nothing. Workers that are threads get no signals.
- hypercorn (`hypercorn/run.py`, `asyncio/run.py`): the parent keeps the signals and sets an event; a worker waits
  `graceful_timeout`, cancels, and sends lifespan.shutdown, which is all that reaches us. Without workers (`-w 0`):
  `loop.add_signal_handler`.
- daphne (`daphne/server.py`, `twisted/internet/_signals.py`): `signal.signal`. `kill_all_applications` cancels every
  request at once, and there is no lifespan scope.

Either kind of handler can be chained with `signal.signal`: asyncio and uvloop learn of signals through
`signal.set_wakeup_fd`, behind a handler that does nothing (`asyncio/unix_events.py`, `uvloop/loop.pyx`).
"""

import asyncio
import contextvars
import logging
import signal
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from types import FrameType
from typing import Any, Protocol

from mcp_django.server.server import Server

logger = logging.getLogger("mcp_django.lifecycle")

Loop = asyncio.AbstractEventLoop
CLOSING = "The server is shutting down"
UNWIND = 1.0
"""Seconds that a call gets to clean up after it was ended, and its answer to leave."""
LOOKS = 100
"""How often is looked in that time whether it has left."""
LAST_WORK = 5.0
"""Seconds that what is done at the very end may take."""
FLUSH = 0.1
"""Seconds for the last bytes to get from the server's buffers to the socket."""


class Airborne(Protocol):
    """A call in flight, or what else takes time to end, as far as its end is concerned."""

    loop: Loop
    task: asyncio.Task[None] | None
    answered: bool

    @property
    def is_call(self) -> bool:
        """Is it a call?"""
        ...

    def shut_down(self) -> None:
        """End it now, with an answer that says why."""


class _Attended:
    """What is known of a loop that has served a call. It must not refer to the loop, whose entry it is."""

    __slots__ = ("brittle", "draining", "endings", "finish", "landing", "last", "scoped")

    def __init__(self) -> None:
        self.draining = False
        """Are new calls refused?"""
        self.scoped = False
        """Will the server say lifespan.shutdown?"""
        self.brittle = 0
        """How much is open that the server does not wait for."""
        self.endings: set[Callable[[], None]] = set()
        self.last: list[Callable[[], Awaitable[None]]] = []
        """What is to be done when the calls have ended, while there still are lanes."""
        # Held, because a loop keeps no tasks alive.
        self.landing: asyncio.Task[None] | None = None
        self.finish: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """The loop is done: its tasks know it, and would keep it."""
        self.landing = self.finish = None
        self.scoped = False


class Lifecycle:
    """What is in the air in this process, and the order in which it comes down. There is one for a process, because a
    process has one set of signal handlers; each of its loops drains for itself.
    """

    def __init__(self, *, grace: Callable[[], float], close_lanes: Callable[[Loop], None]) -> None:
        """`grace` gives the seconds that running calls have to end; `close_lanes` ends the lanes of a loop."""
        self.flights: set[Airborne] = set()
        self.has_drained = False
        """Has any loop begun to drain? While it is False, which is nearly always, nothing else need be asked."""
        self._grace, self._close_lanes = grace, close_lanes
        self._loops: weakref.WeakKeyDictionary[Loop, _Attended] = weakref.WeakKeyDictionary()
        self._servers: weakref.WeakSet[Server] = weakref.WeakSet()
        self._latest: Callable[[], Loop | None] = _nothing
        self._chained: Callable[[], Loop | None] = _nothing

    def board(self, flight: Airborne) -> None:
        """A call begins on the running loop; it takes itself out of `flights` at its end."""
        self.flights.add(flight)
        if self._latest() is not flight.loop:
            self.attend(flight.loop)

    def attend(self, loop: Loop) -> None:
        """See to it that the end of a loop is noticed. Called on the loop, before anything is served there."""
        self._latest = weakref.ref(loop)
        if loop not in self._loops:
            self._loops[loop] = _Attended()
        if threading.current_thread() is threading.main_thread() and _chain(self):
            self._chained = weakref.ref(loop)

    def keep(self, server: Server) -> None:
        """Leave the lifespan of `server` at the end."""
        self._servers.add(server)

    def is_draining(self) -> bool:
        """Are new calls refused on the running loop?"""
        if not self.has_drained:
            return False
        attended = self._loops.get(asyncio.get_running_loop())
        return attended is not None and attended.draining

    def on_drain(self, end: Callable[[], None]) -> Callable[[], None]:
        """Have `end` called when the running loop begins to drain, or at once if it has: how a stream that has no end
        of its own is ended in order. Returns what takes it back.
        """
        loop = asyncio.get_running_loop()
        self.attend(loop)
        attended = self._loops[loop]
        if attended.draining:
            end()
            return _nothing
        attended.endings.add(end)
        return partial(attended.endings.discard, end)

    def shield(self) -> Callable[[], None]:
        """Something is open on the running loop that the server would cut at once: until it is closed, the server is
        told to end when the calls have ended. Returns what takes it back, to be called once.
        """
        loop = asyncio.get_running_loop()
        self.attend(loop)
        attended = self._loops[loop]
        attended.brittle += 1

        def close() -> None:
            attended.brittle -= 1

        return close

    def at_end(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have `work` awaited when the running loop has drained: its calls have ended, its lanes are still there."""
        loop = asyncio.get_running_loop()
        self.attend(loop)
        self._loops[loop].last.append(work)

    async def open(self, servers: Iterable[Server]) -> None:
        """lifespan.startup: enter the lifespans of `servers`. Raises RuntimeError, which says what is wrong with which,
        when one fails; none is entered then.
        """
        loop = asyncio.get_running_loop()
        self.attend(loop)
        attended = self._loops[loop]
        try:
            for server in servers:
                if server.has_lifespan:
                    await _enter(server)
        except BaseException:
            await self._leave()
            raise
        # A loop may serve again after it was drained.
        attended.forget()
        attended.scoped, attended.draining = True, False

    async def close(self) -> None:
        """lifespan.shutdown: the server has waited for its connections, so what still runs has lost its client."""
        loop = asyncio.get_running_loop()
        self.attend(loop)
        attended = self._loops[loop]
        attended.draining = self.has_drained = True
        await asyncio.wait([self._descend(loop, attended)])
        await self._close(loop)
        attended.forget()

    def hear(self, tell: Callable[[], None]) -> bool:
        """A signal asks the process to end: drain every loop. Returns whether `tell`, which tells the server, will be
        called later; otherwise the server is to be told now, because the signal is not the first, or because the
        server waits for connections and will say lifespan.shutdown, and nothing is open that it would not wait for.
        """
        chained, held = self._chained(), False
        for reference in self._loops.keyrefs():
            loop = reference()
            attended = None if loop is None else self._loops.get(loop)
            if loop is None or attended is None or attended.draining or not loop.is_running():
                continue
            holds = loop is chained and (not attended.scoped or attended.brittle > 0)
            # First, because another thread's loop may begin before this one goes on.
            attended.draining = self.has_drained = True
            try:
                loop.call_soon_threadsafe(self._begin, loop, attended, tell if holds else None)
            except RuntimeError:
                continue  # another thread's, and closed just now
            held = held or holds
        return held

    def _begin(self, loop: Loop, attended: _Attended, tell: Callable[[], None] | None) -> None:
        landing = self._descend(loop, attended)
        if not attended.scoped:
            # Nobody will say lifespan.shutdown here: daphne, or a project that serves the view only.
            attended.finish = _task(loop, self._finish(loop, attended, landing, tell))
        elif tell is not None:
            attended.finish = _task(loop, _tell_after(landing, tell))

    def _descend(self, loop: Loop, attended: _Attended) -> asyncio.Task[None]:
        if attended.landing is None:
            for end in tuple(attended.endings):
                _call(end)
            attended.endings.clear()
            attended.landing = _task(loop, self._land(loop))
        return attended.landing

    async def _land(self, loop: Loop) -> None:
        """Wait for the calls of a loop; at the end of the grace end them. Never raises for what a call does."""
        flights = waiting = self._aboard(loop)
        if not flights:
            return
        grace = self._grace()
        until = loop.time() + grace
        if calls := _count(flights.values()):
            logger.info("Shutting down: %d calls have %g seconds to end", calls, grace)
        late: set[asyncio.Task[None]] = set()
        while waiting and not late:
            _, late = await asyncio.wait(waiting, timeout=max(0.0, until - loop.time()))
            # What calls have left for when they are answered came into the air meanwhile.
            waiting = self._aboard(loop)
            flights |= waiting
        if late:
            late |= waiting.keys()
            if calls := _count(flights[task] for task in late):
                logger.warning("Shutting down: %d calls took longer than SHUTDOWN_GRACE and were ended", calls)
            else:
                logger.warning("Shutting down: streams whose clients do not read them to the end were cut off")
            for task in late:
                flights[task].shut_down()
            await asyncio.wait(late, timeout=UNWIND)
        for _ in range(LOOKS):
            if all(flight.answered for flight in flights.values()):
                return
            await asyncio.sleep(UNWIND / LOOKS)  # Django says so from a thread, which wakes nobody

    def _aboard(self, loop: Loop) -> dict[asyncio.Task[None], Airborne]:
        """What is in the air on a loop."""
        found = [flight for flight in list(self.flights) if flight.loop is loop]
        return {flight.task: flight for flight in found if flight.task is not None and not flight.task.done()}

    async def _finish(
        self, loop: Loop, attended: _Attended, landing: asyncio.Task[None], tell: Callable[[], None] | None
    ) -> None:
        try:
            await asyncio.wait([landing])
            await self._close(loop)
            await asyncio.sleep(FLUSH)
        finally:
            attended.forget()
            if tell is not None:
                tell()

    async def _close(self, loop: Loop) -> None:
        attended = self._loops[loop]
        for work in attended.last:
            await _within(work())
        await self._leave()
        await asyncio.to_thread(self._close_lanes, loop)

    async def _leave(self) -> None:
        await asyncio.gather(*(server.lifespan.leave() for server in list(self._servers)))


def _count(flights: Iterable[Airborne]) -> int:
    """How many of them are calls."""
    return sum(flight.is_call for flight in flights)


class _Link:
    """Our handler of a signal, before the server's own."""

    __slots__ = ("_lifecycle", "_server")

    def __init__(self, lifecycle: Lifecycle, server: Callable[[int, FrameType | None], Any]) -> None:
        self._lifecycle, self._server = lifecycle, server

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._lifecycle.hear(partial(self._server, number, None)):
            self._server(number, frame)


def _chain(lifecycle: Lifecycle) -> bool:
    """Hear SIGTERM and SIGINT before the server does. Called on the main thread, as often as one likes.

    A process whose SIGTERM has no handler, or is ignored, is no server's: tests, scripts and commands keep theirs.
    Servers set their handlers before they serve, and put back what was there before when they end.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if isinstance(before, _Link):
            continue
        if not callable(before):
            if number is signal.SIGTERM:
                return False
        elif before is not signal.default_int_handler:
            signal.signal(number, _Link(lifecycle, before))
            if hasattr(signal, "siginterrupt"):
                signal.siginterrupt(number, False)  # as asyncio does for its own
    return True


async def _tell_after(landing: asyncio.Task[None], tell: Callable[[], None]) -> None:
    try:
        await asyncio.wait([landing])
        await asyncio.sleep(FLUSH)
    finally:
        tell()


async def _enter(server: Server) -> None:
    try:
        await server.lifespan.enter()
    except Exception as problem:
        what = f"{type(problem).__name__}: {problem}"
        raise RuntimeError(f'A lifespan of the MCP server "{server.alias}" failed at startup: {what}') from problem


def _task(loop: Loop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    # In a clean context: that of a call may name a lane, which is given back when the call is over.
    return loop.create_task(work, context=contextvars.Context())


def _call(end: Callable[[], None]) -> None:
    try:
        end()
    except Exception:
        logger.exception("A stream could not be told that the server is shutting down")


async def _within(work: Awaitable[None]) -> None:
    try:
        await asyncio.wait_for(work, LAST_WORK)
    except Exception:
        logger.exception("What was to be done when the server shuts down has failed")


def _nothing() -> None:
    """Neither a loop, nor anything to take back."""
