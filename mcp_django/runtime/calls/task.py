"""Supervision of calls: each call runs as a separate task in a context of its own.

A separate task, because a call may outlive its client (handshake era) and Django cancels a view whose client
disconnects. A context of its own, because the variables of one call must not reach another. Running calls are
registered in the table of in-flight requests.
"""

import asyncio
import contextvars
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from mcp_django.aio.asgiref_internals import is_async_to_sync_loop
from mcp_django.protocol.errors import InternalError, MCPError
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.revisions import Era
from mcp_django.runtime.calls.background import BackgroundJobRunner
from mcp_django.runtime.calls.call_limiter import CallCounter
from mcp_django.runtime.shutdown import SHUTDOWN_MESSAGE, Lifecycle
from mcp_django.runtime.streams.replay_buffer import STALLED_CLIENT_MESSAGE, ReplayBuffer, ReplayReader
from mcp_django.server.calls.background import run_background_jobs
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.message_queue import MessageSink, Outbox
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.eras.handshake import INITIALIZE
from mcp_django.server.ports import Overloaded

logger = get_logger("mcp_django.server")


class CallResult(NamedTuple):
    """Result of a call: an answer, an error, or an empty body for a cancelled call."""

    body: bytes
    error: MCPError | Overloaded | None = None


@dataclass(slots=True, eq=False, repr=False)
class CallTask:
    """Running call of a client.

    Call `start`, then `wait_for_output`. Then send the result, or read the message queue as a stream.
    """

    is_call = True

    work: PendingResponse
    counter: CallCounter
    """Counter of the call; the task releases it at its end."""
    owner: str
    """Owner for whom the call is counted."""
    encode_work_error: Callable[[PendingResponse, MCPError], bytes]
    lifecycle: Lifecycle
    open_replay_buffer: Callable[[ServerSession], ReplayBuffer] | None = None
    """Function that opens a resumable stream on this loop, if sessions have them."""

    call: Call = field(init=False)
    loop: asyncio.AbstractEventLoop = field(init=False)
    task: asyncio.Task[None] | None = field(default=None, init=False)
    is_streaming: bool = field(default=False, init=False)
    reader: ReplayReader | None = field(default=None, init=False)
    """Reader of a resumable stream; None if the client reads the message queue."""
    is_cancelled: bool = field(default=False, init=False)
    """True after a cancellation; no answer is sent."""
    is_disconnected: bool = field(default=False, init=False)
    """True after the client disconnected."""

    _outbox: Outbox = field(init=False)
    _has_started: bool = field(default=False, init=False)
    _is_answered: bool = field(default=False, init=False)
    _background_jobs: BackgroundJobRunner | None = field(default=None, init=False)
    _result: CallResult | None = field(default=None, init=False)
    _output_ready: asyncio.Future[None] | None = field(default=None, init=False)
    _timer: asyncio.Handle | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.call = self.work.call
        self._outbox = self.call.outbox

    def start(self, context: contextvars.Context | None = None) -> None:
        """Start the call in `context`, or in a clean context by default.

        Python 3.12 runs the first step eagerly, and most calls finish in it. Python 3.11 runs it in this iteration of
        the loop.
        """
        call = self.call
        if self.work.can_stream and not self.is_streaming:
            self._outbox.on_first_message = self._switch_to_stream

        context = contextvars.Context() if context is None else context
        loop = self.loop = self._outbox.loop = asyncio.get_running_loop()  # a system call on 3.11, so called once

        in_flight = call.connection.in_flight
        if in_flight is not None and not self.work.is_batch:
            in_flight[cast(Request, call.message).id] = self
        self.lifecycle.register(self)
        coroutine = self._run()

        try:
            if sys.version_info >= (3, 12):
                self.task = asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)
            else:
                self.task = asyncio.Task(coroutine, loop=loop, context=context)
        except BaseException:
            if not self._has_started:
                coroutine.close()
                self.work.close()
                self._unregister()
            raise

    def attach_sink(self, sink: MessageSink, *, includes_answer: bool) -> None:
        """Send all messages to an open sink, the answer too if `includes_answer`.

        Call it before `start`.
        """
        self._outbox.redirect_to(sink)
        self.is_streaming = includes_answer
        self._is_answered = True

    async def wait_for_output(self, timeout: float, on_wait: Callable[[], None] | None = None) -> CallResult | None:
        """Return the result if it arrives within `timeout` seconds; None for a stream.

        The timer and `on_wait` start only if the call is still running after its first step. Most calls are done by
        then, and a client cannot disconnect before the next iteration of the loop.
        """
        if self._result is None and self.is_streaming:
            # Messages were sent during the first, eager step; from now on the client may disconnect.
            if on_wait is not None:
                on_wait()
        elif self._result is None:
            loop = self.loop
            self._output_ready = loop.create_future()
            self._timer = loop.call_soon(self._start_stream_timer, loop, timeout, on_wait)
            try:
                await self._output_ready
            finally:
                self._timer.cancel()
        return None if self.is_streaming else self._result

    def _start_stream_timer(
        self, loop: asyncio.AbstractEventLoop, timeout: float, on_wait: Callable[[], None] | None
    ) -> None:
        if self._result is None:
            if self.work.can_stream:
                self._timer = loop.call_later(timeout, self._switch_to_stream)
            if on_wait is not None:
                on_wait()

    def _switch_to_stream(self) -> None:
        """Switch the reply to a stream."""
        if self._result is None and not self.is_streaming:
            self.is_streaming = True
            session = self.call.connection.session
            if session is None or self.open_replay_buffer is None:
                self._outbox.on_abandoned = self._on_abandoned
            else:
                buffer = self.open_replay_buffer(session)
                self.reader = buffer.reader
                self._outbox.redirect_to(buffer)
        self._wake_waiter()

    def _on_abandoned(self) -> None:
        logger.info(STALLED_CLIENT_MESSAGE)
        self.on_disconnect()

    def _wake_waiter(self) -> None:
        if self._output_ready is not None and not self._output_ready.done():
            self._output_ready.set_result(None)

    async def _run(self) -> None:
        self._has_started = True

        try:
            result = CallResult(await self.work.run)
        except (MCPError, Overloaded) as error:
            # Nothing more is sent after a cancellation, whatever the error.
            result = CallResult(b"", None if self.is_cancelled else error)
        except asyncio.CancelledError:
            self.is_cancelled = True
            result = CallResult(b"")
        except BaseException:
            # The exception ends the loop's task; the waiting client must still get an answer.
            self._set_result(CallResult(b"", InternalError()))
            raise
        finally:
            for work_call in self.work.calls:
                if work_call.record.jobs is not None:
                    await self._start_background_jobs()
                    break
            self._unregister()

        self._set_result(result)

    async def _start_background_jobs(self) -> None:
        """Run the background jobs under `async_to_sync`; otherwise schedule them."""
        if is_async_to_sync_loop():
            await run_background_jobs(self.work.calls)
            return
        self._background_jobs = BackgroundJobRunner(self.work.calls, self.lifecycle)
        if self._is_answered:
            self._background_jobs.start()

    @property
    def is_answered(self) -> bool:
        """True after the transport has sent its whole response."""
        return self._is_answered

    @is_answered.setter
    def is_answered(self, is_answered: bool) -> None:
        # Set from any thread.
        self._is_answered = is_answered
        if is_answered and self._background_jobs is not None:
            self._background_jobs.start()

    def _unregister(self) -> None:
        in_flight = self.call.connection.in_flight
        if in_flight is not None and not self.work.is_batch:
            in_flight.pop(cast(Request, self.call.message).id, None)
        # Break the reference cycle: collecting it would cost more than the call.
        self._outbox.on_first_message = self._outbox.on_abandoned = None
        self.counter.release(self.owner, self.work.call_count)
        self.lifecycle.active.discard(self)

    def _set_result(self, result: CallResult) -> None:
        if self._result is not None:
            return  # the call was aborted, which was its answer
        self._result = result
        if self.is_streaming:
            self._outbox.finish(self.encode_answer(result))
        else:
            # Tasks left by the handler may still send messages, and must not wait for a reader.
            self._outbox.finish()
            self._wake_waiter()

    def encode_answer(self, result: CallResult) -> bytes | None:
        """Return the encoded answer of a result; None for a cancelled call."""
        error = result.error
        if isinstance(error, Overloaded):
            error = InternalError(str(error))
        return (result.body or None) if error is None else self.encode_error(error)

    def encode_error(self, error: MCPError) -> bytes:
        """Return an encoded error response."""
        return self.encode_work_error(self.work, error)

    def on_disconnect(self) -> None:
        """Handle the client's disconnection.

        A stateless call is cancelled. A handshake call continues without a reader (basic/transports), and its stream
        buffers the messages. Without a resumable stream the client has no id to reconnect with.
        """
        self.is_disconnected = self.is_answered = True
        if self.reader is not None:
            self.reader.close()
            return
        self._outbox.abort()
        if self.call.revision.era is Era.STATELESS:
            self.cancel()
        self._wake_waiter()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that the call runs on."""
        return self.loop

    def cancel(self) -> None:
        """Cancel the call; nothing more is sent."""
        if self.call.method == INITIALIZE:
            return  # must not be cancelled (basic/utilities/cancellation), and its session would remain open
        if self.task is not None and not self.task.done() and not self.is_cancelled:
            self._outbox.abort()
            self._cancel_task(self.task)
            if not self._has_started:
                self._set_result(CallResult(b""))

    def abort(self, message: str = SHUTDOWN_MESSAGE) -> None:
        """Cancel the call, and answer with an error. By default, its text is that the process ends."""
        if self.task is not None and not self.task.done() and not self.is_cancelled:
            self._set_result(CallResult(b"", Overloaded(message)))
            self._cancel_task(self.task)

    def _cancel_task(self, task: asyncio.Task[None]) -> None:
        self.is_cancelled = True
        self.call.record.cancelled = True
        task.cancel()
        if not self._has_started:
            # A task cancelled before its first step runs no code at all, not even its cleanup.
            self.work.close()
            self._unregister()
