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
  `graceful_timeout`, cancels, and sends lifespan.shutdown, the only notification that this package receives. With
  several workers, the parent terminates all once one has ended. Without workers (`-w 0`): `loop.add_signal_handler`.
- daphne (`daphne/server.py`, `twisted/internet/_signals.py`): `signal.signal`. `kill_all_applications` cancels every
  request at once. The lifespan scope is not supported.

Both kinds of handlers can be chained with `signal.signal`: asyncio and uvloop receive signals through
`signal.set_wakeup_fd`, and their own handler does nothing (`asyncio/unix_events.py`, `uvloop/loop.pyx`).
"""

import asyncio
import signal
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Protocol

from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import call_threadsafe, run_in_background, start_task
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.server import Server

logger = get_logger("mcp_django.lifecycle")

Loop = asyncio.AbstractEventLoop
SHUTDOWN_MESSAGE = "The server is shutting down"
UNWIND_TIMEOUT_SECONDS = 1.0
"""Maximum seconds for a cancelled call to clean up, and for its answer to be sent."""
MAX_ANSWER_CHECKS = 100
"""Number of checks in that time for unsent answers."""
CLEANUP_TIMEOUT_SECONDS = 5.0
"""Maximum seconds for each cleanup callback."""
FLUSH_SECONDS = 0.1
"""Seconds for the last bytes to reach the socket from the server's buffers."""


class Drainable(Protocol):
    """Running call, or another task that shutdown waits for."""

    loop: Loop
    task: asyncio.Task[None] | None
    is_answered: bool

    @property
    def is_call(self) -> bool:
        """True for a call, False for other tasks."""
        ...

    def abort(self) -> None:
        """Cancel the task; a call is answered with an error."""


@dataclass(slots=True, eq=False, repr=False)
class _DrainState:
    """Shutdown state of a loop that has served a call.

    It must not refer to the loop, its weak key.
    """

    is_draining: bool = False
    """True while new calls are rejected."""
    has_lifespan_scope: bool = False
    """True if the server will send lifespan.shutdown."""
    protected_count: int = 0
    """Number of open connections that the server does not wait for."""
    drain_callbacks: set[Callable[[], None]] = field(default_factory=set)
    cleanup_callbacks: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Callbacks to await after the calls have ended, before the threads are stopped."""
    drain_task: asyncio.Task[None] | None = None

    def reset(self) -> None:
        """Drop the task of a finished loop, because it refers to the loop."""
        self.drain_task = None
        self.has_lifespan_scope = False


class Lifecycle:
    """Registry of running calls and coordinator of their shutdown.

    Each process has one instance, because a process has one set of signal handlers. Each loop drains separately.
    """

    def __init__(self, *, close_threads: Callable[[Loop], None], grace_seconds: float) -> None:
        """Create the registry of a process.

        `close_threads` stops the threads of a loop. `grace_seconds` are the seconds that running calls have to end.
        """
        self.active: set[Drainable] = set()
        self.has_started_draining = False
        """True after any loop has started draining.

        Almost always False, which makes it a cheap first check.
        """
        self.loop_callbacks: set[Callable[[], None]] = set()
        """Callbacks to call on each loop that starts to serve. They must neither wait nor raise."""
        self.grace_seconds = grace_seconds
        self._close_threads = close_threads
        self._states = LoopLocal(_DrainState)
        self._servers: weakref.WeakSet[Server] = weakref.WeakSet()
        self._latest_loop: Callable[[], Loop | None] = _do_nothing
        self._signal_loop: Callable[[], Loop | None] = _do_nothing

    def register(self, item: Drainable) -> None:
        """Register a call of the running loop; it removes itself from `active` at its end."""
        self.active.add(item)
        if self._latest_loop() is not item.loop:
            self.track_loop(item.loop)

    def track_loop(self, loop: Loop) -> _DrainState:
        """Track a loop, so that its shutdown is coordinated, and return its state.

        Call it on the loop before serving.
        """
        self._latest_loop = weakref.ref(loop)
        state = self._states.get(loop)
        if threading.current_thread() is threading.main_thread() and _install_signal_handlers(self):
            self._signal_loop = weakref.ref(loop)
        for callback in tuple(self.loop_callbacks):
            callback()
        return state

    def add_server(self, server: Server) -> None:
        """Exit the lifespan of `server` at shutdown."""
        self._servers.add(server)

    def list_servers(self) -> list[Server]:
        """Return the servers that this process serves."""
        return list(self._servers)

    def is_draining(self) -> bool:
        """Return True if new calls are rejected on the running loop."""
        if not self.has_started_draining:
            return False
        state = self._states.find()
        return state is not None and state.is_draining

    def add_drain_callback(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the running loop starts draining, or at once if it has.

        It ends streams that would never end by themselves. Returns a function that removes the callback.
        """
        state = self.track_loop(asyncio.get_running_loop())
        if state.is_draining:
            callback()
            return _do_nothing

        state.drain_callbacks.add(callback)
        return partial(state.drain_callbacks.discard, callback)

    def protect_connection(self) -> Callable[[], None]:
        """Delay the server's exit until a connection is closed or all calls have ended.

        For connections that the server would cut at once. Returns a function that ends the protection; call it once.
        """
        state = self.track_loop(asyncio.get_running_loop())
        state.protected_count += 1

        def close() -> None:
            state.protected_count -= 1

        return close

    def add_cleanup(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Await `callback` after the running loop has drained, before its threads stop."""
        self.track_loop(asyncio.get_running_loop()).cleanup_callbacks.append(callback)

    async def startup(self, servers: Iterable[Server]) -> None:
        """Handle lifespan.startup: enter the lifespans of `servers`.

        Raises:
            RuntimeError: a lifespan failed, described in the message; no lifespan remains entered.
        """
        state = self.track_loop(asyncio.get_running_loop())
        try:
            for server in servers:
                if not server.has_lifespan:
                    continue
                try:
                    await server.lifespan.enter()
                except Exception as problem:
                    raise RuntimeError(
                        f'A lifespan of the MCP server "{server.alias}" failed at startup: '
                        f"{type(problem).__name__}: {problem}"
                    ) from problem
        except BaseException:
            await self._exit_lifespans()
            raise
        # A loop may serve again after it was drained.
        state.reset()
        state.has_lifespan_scope, state.is_draining = True, False

    async def shutdown(self, grace_seconds: float | None = None) -> None:
        """Handle lifespan.shutdown; the server has waited for its connections already.

        Calls that still run have lost their client. `grace_seconds` replaces the grace period of the settings.
        """
        loop = asyncio.get_running_loop()
        state = self.track_loop(loop)
        state.is_draining = self.has_started_draining = True
        await asyncio.wait([self._start_drain(loop, state, grace_seconds)])
        await self._clean_up(loop, state)
        state.reset()

    def on_signal(self, notify_server: Callable[[], None]) -> bool:
        """Handle a shutdown signal: drain every loop.

        Returns True if `notify_server`, which calls the server's own handler, will be called later. Returns False if it
        must be called now, for one of two reasons. The signal is a repeated one. Or the server waits for its
        connections by itself and will send lifespan.shutdown, and none of its connections needs protection.
        """
        signal_loop, is_delayed = self._signal_loop(), False
        for loop, state in self._states.items():
            if state.is_draining or not loop.is_running():
                continue

            delays_server = loop is signal_loop and (not state.has_lifespan_scope or state.protected_count > 0)
            # Set the flag first, because the loop of another thread may start before this function continues.
            state.is_draining = self.has_started_draining = True
            is_scheduled = call_threadsafe(
                loop, self._start_shutdown, loop, state, notify_server if delays_server else None
            )
            is_delayed = is_delayed or (is_scheduled and delays_server)
        return is_delayed

    def _start_shutdown(self, loop: Loop, state: _DrainState, notify_server: Callable[[], None] | None) -> None:
        drain_task = self._start_drain(loop, state)
        if notify_server is not None or not state.has_lifespan_scope:
            run_in_background(self._finish(loop, state, drain_task, notify_server))

    def _start_drain(self, loop: Loop, state: _DrainState, grace_seconds: float | None = None) -> asyncio.Task[None]:
        if state.drain_task is None:
            for callback in tuple(state.drain_callbacks):
                try:
                    callback()
                except Exception:
                    logger.exception("Shutdown callback of a stream failed")
            state.drain_callbacks.clear()
            state.drain_task = start_task(self._drain(loop, grace_seconds))
        return state.drain_task

    async def _drain(self, loop: Loop, grace_seconds: float | None) -> None:
        """Wait for the calls of a loop, and abort them after the grace period.

        Errors of calls are not raised.
        """
        items = waiting = self._find_active(loop)
        if not items:
            return

        grace = self.grace_seconds if grace_seconds is None else grace_seconds
        deadline = loop.time() + grace
        if calls := _count_calls(items.values()):
            logger.info("Shutting down: %d calls have %g seconds to end", calls, grace)

        late: set[asyncio.Task[None]] = set()
        while waiting and not late:
            _, late = await asyncio.wait(waiting, timeout=max(0.0, deadline - loop.time()))
            # Background jobs of finished calls may have been registered in the meantime.
            waiting = self._find_active(loop)
            items |= waiting

        if late:
            late |= waiting.keys()
            if calls := _count_calls(items[task] for task in late):
                logger.warning("Shutting down: %d calls exceeded SHUTDOWN_GRACE and were cancelled", calls)
            else:
                logger.warning("Shutting down: cutting streams whose clients did not read them to the end")
            for task in late:
                items[task].abort()
            await asyncio.wait(late, timeout=UNWIND_TIMEOUT_SECONDS)

        for _ in range(MAX_ANSWER_CHECKS):
            if all(item.is_answered for item in items.values()):
                return
            await asyncio.sleep(
                UNWIND_TIMEOUT_SECONDS / MAX_ANSWER_CHECKS
            )  # poll: Django sets the flag from a thread, without waking the loop

    def _find_active(self, loop: Loop) -> dict[asyncio.Task[None], Drainable]:
        """Return the running tasks of a loop with their items."""
        items = [item for item in list(self.active) if item.loop is loop]
        return {item.task: item for item in items if item.task is not None and not item.task.done()}

    async def _finish(
        self, loop: Loop, state: _DrainState, drain_task: asyncio.Task[None], notify_server: Callable[[], None] | None
    ) -> None:
        # Otherwise the server will not send lifespan.shutdown: daphne, or a project that serves only the view.
        has_lifespan_scope = state.has_lifespan_scope
        try:
            await asyncio.wait([drain_task])
            if not has_lifespan_scope:
                await self._clean_up(loop, state)
            await asyncio.sleep(FLUSH_SECONDS)
        finally:
            if not has_lifespan_scope:
                state.reset()
            if notify_server is not None:
                notify_server()

    async def _clean_up(self, loop: Loop, state: _DrainState) -> None:
        for callback in state.cleanup_callbacks:
            try:
                await asyncio.wait_for(callback(), CLEANUP_TIMEOUT_SECONDS)
            except Exception:
                logger.exception("Shutdown cleanup callback failed")
        await self._exit_lifespans()
        await asyncio.to_thread(self._close_threads, loop)

    async def _exit_lifespans(self) -> None:
        await asyncio.gather(*(server.lifespan.exit() for server in list(self._servers)))


def _count_calls(items: Iterable[Drainable]) -> int:
    """Return the number of calls among the items."""
    return sum(item.is_call for item in items)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _ChainedSignalHandler:
    """Signal handler that drains the loops before it calls the server's handler."""

    lifecycle: Lifecycle
    server_handler: Callable[[int, FrameType | None], Any]

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.lifecycle.on_signal(partial(self.server_handler, number, None)):
            self.server_handler(number, frame)


def _install_signal_handlers(lifecycle: Lifecycle) -> bool:
    """Install handlers for SIGTERM and SIGINT before the server's own.

    Idempotent; call it on the main thread only. Return False if the process does not belong to a server.

    A process with a default or ignored SIGTERM does not belong to a server: tests, scripts and commands keep their
    handlers. Servers install their handlers before they serve, and restore the previous ones at their end.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        previous_handler = signal.getsignal(number)
        if isinstance(previous_handler, _ChainedSignalHandler):
            continue
        if not callable(previous_handler):
            if number is signal.SIGTERM:
                return False
        elif previous_handler is not signal.default_int_handler:
            signal.signal(number, _ChainedSignalHandler(lifecycle, previous_handler))
            if hasattr(signal, "siginterrupt"):
                signal.siginterrupt(number, False)  # as asyncio does for its own handlers
    return True


def _do_nothing() -> None:
    """Return None; used as an empty loop reference and as an empty remover."""
