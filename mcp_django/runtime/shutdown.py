"""Graceful shutdown: drain running calls, exit lifespans, stop threads.

New calls are rejected. The server's own signal handler runs last, if the server would not wait for calls by itself.
Behaviour of the servers on SIGTERM, according to their sources:

- uvicorn, also as gunicorn's worker (`uvicorn/server.py`): `signal.signal` in `capture_signals`. It closes its sockets,
  waits for connections and tasks (unbounded, unless `timeout_graceful_shutdown` is set) and sends lifespan.shutdown.
  Then it raises the signal again under the old handler: with SIG_DFL the process ends before `asyncio.run` has
  cancelled the remaining tasks. It does not wait for WebSockets: it closes each with 1012 at once
  (`uvicorn/protocols/websockets/`, `shutdown`).
- granian (`granian/_signals.py`, `server/mp.py`): `loop.add_signal_handler` in each worker process. It waits for
  connections, sends lifespan.shutdown and cancels nothing. Worker threads receive no signals.
- hypercorn (`hypercorn/run.py`, `asyncio/run.py`): the parent handles the signals and sets an event; a worker waits
  `graceful_timeout`, cancels, and sends lifespan.shutdown, the only notification that this package receives. Without
  workers (`-w 0`): `loop.add_signal_handler`.
- daphne (`daphne/server.py`, `twisted/internet/_signals.py`): `signal.signal`. `kill_all_applications` cancels every
  request at once. The lifespan scope is not supported.

Both kinds of handlers can be chained with `signal.signal`: asyncio and uvloop receive signals through
`signal.set_wakeup_fd`, and their own handler does nothing (`asyncio/unix_events.py`, `uvloop/loop.pyx`).
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
"""Maximum seconds for a cancelled call to clean up, and for its answer to be sent."""
LOOKS = 100
"""Number of checks in that time for unsent answers."""
LAST_WORK = 5.0
"""Maximum seconds for each cleanup callback."""
FLUSH = 0.1
"""Seconds for the last bytes to reach the socket from the server's buffers."""


class Airborne(Protocol):
    """Running call, or another task that shutdown waits for."""

    loop: Loop
    task: asyncio.Task[None] | None
    answered: bool

    @property
    def is_call(self) -> bool:
        """True for a call, False for other tasks."""
        ...

    def shut_down(self) -> None:
        """Cancel the task; a call is answered with an error."""


class _Attended:
    """Shutdown state of a loop that has served a call.

    It must not refer to the loop, its weak key.
    """

    __slots__ = ("brittle", "draining", "endings", "finish", "landing", "last", "scoped")

    def __init__(self) -> None:
        self.draining = False
        """True while new calls are rejected."""
        self.scoped = False
        """True if the server will send lifespan.shutdown."""
        self.brittle = 0
        """Number of open connections that the server does not wait for."""
        self.endings: set[Callable[[], None]] = set()
        self.last: list[Callable[[], Awaitable[None]]] = []
        """Callbacks to await after the calls have ended, before the threads are stopped."""
        # Strong references, because a loop keeps weak ones to its tasks only.
        self.landing: asyncio.Task[None] | None = None
        self.finish: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """Drop the tasks of a finished loop, because they refer to it."""
        self.landing = self.finish = None
        self.scoped = False


class Lifecycle:
    """Registry of running calls and coordinator of their shutdown.

    Each process has one instance, because a process has one set of signal handlers. Each loop drains separately.
    """

    def __init__(self, *, grace: Callable[[], float], close_lanes: Callable[[Loop], None]) -> None:
        """Create the registry of a process.

        `get_grace_seconds` returns the seconds that running calls have to end. `close_threads` stops the threads of a
        loop.
        """
        self.flights: set[Airborne] = set()
        self.has_drained = False
        """True after any loop has started draining.

        Almost always False, which makes it a cheap first check.
        """
        self._grace, self._close_lanes = grace, close_lanes
        self._loops: weakref.WeakKeyDictionary[Loop, _Attended] = weakref.WeakKeyDictionary()
        self._servers: weakref.WeakSet[Server] = weakref.WeakSet()
        self._latest: Callable[[], Loop | None] = _nothing
        self._chained: Callable[[], Loop | None] = _nothing

    def board(self, flight: Airborne) -> None:
        """Register a call of the running loop; it removes itself from `active` at its end."""
        self.flights.add(flight)
        if self._latest() is not flight.loop:
            self.attend(flight.loop)

    def attend(self, loop: Loop) -> None:
        """Track a loop, so that its shutdown is coordinated.

        Call it on the loop before serving.
        """
        self._latest = weakref.ref(loop)
        if loop not in self._loops:
            self._loops[loop] = _Attended()
        if threading.current_thread() is threading.main_thread() and _chain(self):
            self._chained = weakref.ref(loop)

    def keep(self, server: Server) -> None:
        """Exit the lifespan of `server` at shutdown."""
        self._servers.add(server)

    def is_draining(self) -> bool:
        """Return True if new calls are rejected on the running loop."""
        if not self.has_drained:
            return False
        attended = self._loops.get(asyncio.get_running_loop())
        return attended is not None and attended.draining

    def on_drain(self, end: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the running loop starts draining, or at once if it has.

        It ends streams that would never end by themselves. Returns a function that removes the callback.
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
        """Delay the server's exit until a connection is closed or all calls have ended.

        For connections that the server would cut at once. Returns a function that ends the protection; call it once.
        """
        loop = asyncio.get_running_loop()
        self.attend(loop)
        attended = self._loops[loop]
        attended.brittle += 1

        def close() -> None:
            attended.brittle -= 1

        return close

    def at_end(self, work: Callable[[], Awaitable[None]]) -> None:
        """Await `callback` after the running loop has drained, before its threads stop."""
        loop = asyncio.get_running_loop()
        self.attend(loop)
        self._loops[loop].last.append(work)

    async def open(self, servers: Iterable[Server]) -> None:
        """Handle lifespan.startup: enter the lifespans of `servers`.

        Raises:
            RuntimeError: a lifespan failed, described in the message; no lifespan remains entered.
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
        """Handle lifespan.shutdown; the server has waited for its connections already.

        Calls that still run have lost their client.
        """
        loop = asyncio.get_running_loop()
        self.attend(loop)
        attended = self._loops[loop]
        attended.draining = self.has_drained = True
        await asyncio.wait([self._descend(loop, attended)])
        await self._close(loop)
        attended.forget()

    def hear(self, tell: Callable[[], None]) -> bool:
        """Handle a shutdown signal: drain every loop.

        Returns True if `notify_server`, which calls the server's own handler, will be called later. Returns False if it
        must be called now, for one of two reasons. The signal is a repeated one. Or the server waits for its
        connections by itself and will send lifespan.shutdown, and none of its connections needs protection.
        """
        chained, held = self._chained(), False
        for reference in self._loops.keyrefs():
            loop = reference()
            attended = None if loop is None else self._loops.get(loop)
            if loop is None or attended is None or attended.draining or not loop.is_running():
                continue

            holds = loop is chained and (not attended.scoped or attended.brittle > 0)
            # Set the flag first, because the loop of another thread may start before this function continues.
            attended.draining = self.has_drained = True
            try:
                loop.call_soon_threadsafe(self._begin, loop, attended, tell if holds else None)
            except RuntimeError:
                continue  # another thread's loop, closed just now
            held = held or holds
        return held

    def _begin(self, loop: Loop, attended: _Attended, tell: Callable[[], None] | None) -> None:
        landing = self._descend(loop, attended)
        if not attended.scoped:
            # The server will not send lifespan.shutdown: daphne, or a project that serves only the view.
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
        """Wait for the calls of a loop, and abort them after the grace period.

        Errors of calls are not raised.
        """
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
            # Background jobs of finished calls may have been registered in the meantime.
            waiting = self._aboard(loop)
            flights |= waiting

        if late:
            late |= waiting.keys()
            if calls := _count(flights[task] for task in late):
                logger.warning("Shutting down: %d calls exceeded SHUTDOWN_GRACE and were cancelled", calls)
            else:
                logger.warning("Shutting down: cutting streams whose clients did not read them to the end")
            for task in late:
                flights[task].shut_down()
            await asyncio.wait(late, timeout=UNWIND)

        for _ in range(LOOKS):
            if all(flight.answered for flight in flights.values()):
                return
            await asyncio.sleep(UNWIND / LOOKS)  # poll: Django sets the flag from a thread, without waking the loop

    def _aboard(self, loop: Loop) -> dict[asyncio.Task[None], Airborne]:
        """Return the running tasks of a loop with their items."""
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
    """Return the number of calls among the items."""
    return sum(flight.is_call for flight in flights)


class _Link:
    """Signal handler that drains the loops before it calls the server's handler."""

    __slots__ = ("_lifecycle", "_server")

    def __init__(self, lifecycle: Lifecycle, server: Callable[[int, FrameType | None], Any]) -> None:
        self._lifecycle, self._server = lifecycle, server

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._lifecycle.hear(partial(self._server, number, None)):
            self._server(number, frame)


def _chain(lifecycle: Lifecycle) -> bool:
    """Install handlers for SIGTERM and SIGINT before the server's own.

    Idempotent; call it on the main thread only. Return False if the process does not belong to a server.

    A process with a default or ignored SIGTERM does not belong to a server: tests, scripts and commands keep their
    handlers. Servers install their handlers before they serve, and restore the previous ones at their end.
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
                signal.siginterrupt(number, False)  # as asyncio does for its own handlers
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
    # In a clean context: a call's context may refer to a thread that returns to the pool.
    return loop.create_task(work, context=contextvars.Context())


def _call(end: Callable[[], None]) -> None:
    try:
        end()
    except Exception:
        logger.exception("Shutdown callback of a stream failed")


async def _within(work: Awaitable[None]) -> None:
    try:
        await asyncio.wait_for(work, LAST_WORK)
    except Exception:
        logger.exception("Shutdown cleanup callback failed")


def _nothing() -> None:
    """Return None; used as an empty loop reference and as an empty remover."""
