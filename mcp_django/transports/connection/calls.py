"""Calls, subscriptions and tasks of a connection, of both eras."""

import asyncio
import contextvars
from collections import ChainMap
from collections.abc import Callable, Coroutine
from typing import Any

from django.db import Error

from mcp_django.aio.tasks import BackgroundTasks, run_in_background
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MCPError
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.calls.call_limiter import CallCounter
from mcp_django.runtime.calls.task import CallResult, CallTask
from mcp_django.runtime.database_failures import report_database_error
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.calls.session import Cancellable
from mcp_django.server.eras.handshake import INITIALIZE
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.subscriptions.listen import Subscription
from mcp_django.transports.connection.call_queue import CallQueue
from mcp_django.transports.connection.options import ConnectionOptions
from mcp_django.transports.connection.outbound import ConnectionSink, SubscriptionSender
from mcp_django.transports.connection.session import ConnectionSession
from mcp_django.transports.connection.session_state import SessionState
from mcp_django.transports.services import TransportServices

logger = get_logger("mcp_django.server")


class ConnectionCalls:
    """The calls of a connection, in one table, with their answers in one queue."""

    def __init__(
        self,
        services: TransportServices,
        options: ConnectionOptions,
        principal: Principal,
        outbox: Outbox,
        *,
        on_finished: Callable[[], None],
        on_session_ended: Callable[[], None],
    ) -> None:
        """Set the queue of answers, and the callbacks.

        `on_finished` is called at the end of a call or a task, `on_session_ended` at that of the session's stream.
        """
        self._services = services
        self._context = options.context
        self._owner = principal.key
        self._outbox = outbox
        self._on_finished = on_finished
        self._on_session_ended = on_session_ended
        self.active: dict[jsonrpc.Id, Cancellable] = {}
        self._queue = CallQueue(services.limits.in_flight, services.limits.body, self._owner)
        self._subscriptions: dict[jsonrpc.Id, Subscription] = {}
        self._used_ids: ChainMap[jsonrpc.Id, Any] = ChainMap(self.active, self._subscriptions)
        self._subscription_sender = SubscriptionSender(outbox, self._subscriptions, self.spawn)

        self.stateless_connection = options.create_connection(principal, self.active, self._subscriptions)
        self.session_state = SessionState(
            services, options.create_connection(principal, self.active, self._subscriptions)
        )
        self._tasks = BackgroundTasks(on_error=_log_failure)
        self.notification_tasks: set[asyncio.Task[None]] = set()
        """Tasks that handle notifications and responses."""
        self.is_draining = False

    def set_principal(self, principal: Principal) -> None:
        """Set the principal of further calls."""
        self.stateless_connection.principal = principal
        self.session_state.connection.principal = principal

    def has_room(self) -> bool:
        """Return True if a request may be handled now."""
        return self._outbox.has_room() and not self._queue.is_full()

    async def wait_for_room(self) -> None:
        """Wait until there is room, or may be: check again, because other requests wait too."""
        await self._outbox.wait_for_room()
        await self._queue.wait_for_room()

    def is_busy(self) -> bool:
        """Return True while the connection has work left."""
        return bool(self.active or self._subscriptions or self.session_state.is_opening or self._queue.is_busy())

    def start(self, work: PendingResponse, size: int) -> None:
        """Start a call whose message has `size` bytes, or answer with the error that refuses it."""
        try:
            admitted, counter = self._queue.admit(work, size, self._used_ids)
        except (MCPError, Overloaded) as error:
            reported_error = error if isinstance(error, MCPError) else InternalError(str(error))
            self._outbox.put_nowait(self._services.pipeline.encode_work_error(work, reported_error))
        else:
            self._start_admitted(admitted, counter)

    def _start_admitted(self, work: PendingResponse, counter: CallCounter) -> None:
        encode_error = self._services.pipeline.encode_work_error
        task = CallTask(work, counter, self._owner, encode_error, self._services.lifecycle)
        task.attach_sink(ConnectionSink(self._outbox, self._on_finished), includes_answer=work.can_stream)
        if work.call.method == INITIALIZE:
            self.session_state.start_opening()
        task.start(self._create_context())
        if not work.can_stream:
            run_in_background(self._finish_unstreamed_call(task))

    def start_notification(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start the handler of a notification or a response."""
        self.notification_tasks.add(self.spawn(coroutine))

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that ends with the connection."""
        task = self._tasks.spawn_in(self._create_context(), coroutine)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self.notification_tasks.discard(task)
        self._on_finished()

    def _create_context(self) -> contextvars.Context:
        return contextvars.Context() if self._context is None else self._context.copy()

    async def _finish_unstreamed_call(self, task: CallTask) -> None:
        """Finish a call with effects beyond its answer, even after the connection ended."""
        result = await task.wait_for_output(float("inf"))
        call = task.call
        assert result is not None  # The call does not stream.
        try:
            is_wanted = result.error is None and not task.is_cancelled
            session, call.connection.opened_session = call.connection.opened_session, None
            if session is not None:
                own_session = await self.session_state.attach(session, self.active, is_wanted=is_wanted)
                if own_session is not None:
                    self.spawn(self._forward_session_messages(own_session))
            elif call.id in self._subscriptions and is_wanted:
                self._subscription_sender.add(self._subscriptions[call.id], is_closing=self.is_draining)
                return  # The answer is sent at the end of the stream.
        except Overloaded as overload:
            logger.warning("A session could not be opened", exc_info=overload)
            result = CallResult(b"", overload)
        except Error as error:
            result = CallResult(b"", report_database_error("the session of a connection", error))
        finally:
            if call.method == INITIALIZE:
                self.session_state.finish_opening()

        answer = task.encode_answer(result)
        if answer is not None:
            self._outbox.put_nowait(answer)

        self._on_finished()

    async def _forward_session_messages(self, own_session: ConnectionSession) -> None:
        await own_session.forward_messages(self._outbox)
        self._on_session_ended()

    def drain(self) -> None:
        """Close the subscriptions after their pending messages. Calls may finish."""
        self.is_draining = True
        self._subscription_sender.close_all()

    def abort(self) -> None:
        """Abort all calls, each with an error answer."""
        self.is_draining = True
        for call in list(self.active.values()):
            if isinstance(call, CallTask):
                call.abort()

    def cancel(self) -> None:
        """Cancel all calls and subscriptions, and detach from the session's stream."""
        for call in list(self.active.values()):
            call.cancel()
        self._subscription_sender.cancel_all()
        self.session_state.detach()

    def stop_tasks(self) -> None:
        """Cancel the tasks that are not calls."""
        self._tasks.cancel()


def _log_failure(error: BaseException) -> None:
    if not isinstance(error, Overloaded):  # Logged where it was raised.
        logger.error("Unhandled exception in a connection task", exc_info=error)
