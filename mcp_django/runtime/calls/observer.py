"""Observation of calls: access log, signals and traces.

Signals are `call_started` and `call_finished`. Without receivers and tracing, a call costs two checks of receiver lists
and one of the logger's level.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from mcp_django.aio.tasks import BackgroundTasks
from mcp_django.protocol.errors import InternalError, MCPError, ResourceNotFound
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.calls.metrics import CallMetrics
from mcp_django.runtime.calls.tracing import CallSpan, CallTracer
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.internal_errors import is_bug
from mcp_django.server.calls.log_sanitizer import get_log_fields, get_session_label
from mcp_django.server.ports import CallObservation, Executor, Outcome, Overloaded
from mcp_django.signals import call_finished, call_started

call_logger = get_logger("mcp_django.calls")
logger = get_logger("mcp_django.server")

RECEIVER_TIMEOUT_SECONDS = 5.0
"""Maximum seconds that a call waits for the receivers of a signal.

They are cancelled afterwards.
"""
LOG_LEVELS = {
    Outcome.TIMEOUT: logging.WARNING,
    Outcome.OVERLOADED: logging.WARNING,
    Outcome.BUG: logging.ERROR,
}
"""Log levels of outcomes other than INFO."""
_OK, _INFO = Outcome.OK, logging.INFO
_UNQUOTED = re.compile(r"[\w.,:/|@+~*%?…-]+")
_TARGET_FIELDS = ("mcp_method", "mcp_name")
_FORMATTED_FIELDS = frozenset({*_TARGET_FIELDS, "mcp_outcome", "mcp_duration_ms"})
_running_tasks = BackgroundTasks()
OutcomeRecorder = Callable[[Call, Outcome, MCPError | Overloaded | None], None]
"""Function that receives each finished call. It must not wait, and must not raise."""
_recorders: list[OutcomeRecorder] = []


def add_outcome_recorder(recorder: OutcomeRecorder) -> None:
    """Add a function that receives each finished call of this process, notifications included.

    Adding it twice has no effect.
    """
    if recorder not in _recorders:
        _recorders.append(recorder)


def remove_outcome_recorder(recorder: OutcomeRecorder) -> None:
    """Undo `add_outcome_recorder`."""
    if recorder in _recorders:
        _recorders.remove(recorder)


@dataclass(eq=False, repr=False)
class SignalCallObserver:
    """Implementation of `ports.Observer`.

    `executor` runs synchronous receivers. `tracer` and `metrics` are None if OpenTelemetry is unavailable.
    """

    executor: Executor
    tracer: CallTracer | None = None
    metrics: CallMetrics | None = None

    def observe(self, call: Call) -> CallObservation | None:
        tracer = self.tracer
        span = None if tracer is None else tracer.create_span(call)
        if span is None and not call_started.receivers and not call_finished.receivers:
            return None
        return _SignalObservation(call, self.executor, span)

    def record_outcome(self, call: Call, outcome: Outcome, error: MCPError | Overloaded | None) -> None:
        """Log a call on `mcp_django.calls`, and pass it to the recorders. Notifications are logged at DEBUG."""
        for recorder in _recorders:
            recorder(call, outcome, error)
        if self.metrics is not None and self.metrics.is_active(call.started_at):
            _call_safely(self.metrics.record_call, call, outcome, get_error_code(call, error))
        level = _INFO if outcome is _OK else LOG_LEVELS.get(outcome, _INFO)
        if not call_logger.isEnabledFor(level):
            return
        if call.id is None:
            level = logging.DEBUG

        fields = {**get_log_fields(call), **_outcome_fields(call, outcome, error)}
        target = " ".join(_quote_if_needed(fields[name]) for name in _TARGET_FIELDS if name in fields)
        details = " ".join(
            f"{name[4:]}={_quote_if_needed(str(value))}"
            for name, value in fields.items()
            if name not in _FORMATTED_FIELDS
        )
        call_logger.log(
            level, "%s: %s in %.1f ms, %s", target, outcome.value, fields["mcp_duration_ms"], details, extra=fields
        )


def get_error_code(call: Call, error: MCPError | Overloaded | None) -> int | None:
    """Return the code of the JSON-RPC error that the client received, or None."""
    if isinstance(error, ResourceNotFound):
        return call.revision.resource_not_found
    if isinstance(error, Overloaded):
        return InternalError.code
    return None if error is None else error.code


def _outcome_fields(call: Call, outcome: Outcome, error: MCPError | Overloaded | None) -> dict[str, Any]:
    fields = {
        "mcp_session": get_session_label(call),
        "mcp_revision": call.revision.version,
        "mcp_outcome": outcome.value,
        "mcp_duration_ms": round(call.duration * 1000, 3),
        "mcp_error_code": get_error_code(call, error),
        "mcp_reference": call.record.reference,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _quote_if_needed(label: str) -> str:
    if _UNQUOTED.fullmatch(label):
        return label
    quoted = label.replace('"', '\\"')
    return f'"{quoted}"'


@dataclass(slots=True, eq=False, repr=False)
class _SignalObservation:
    """Implementation of `ports.CallObservation`."""

    _call: Call
    _executor: Executor
    _span: CallSpan | None
    _previous_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._span is not None:
            _call_safely(self._span.start)
        await self._send_signal(call_started)

    async def finish(self, outcome: Outcome, error: MCPError | Overloaded | None) -> None:
        record = self._call.record
        try:
            await self._send_signal(
                call_finished, outcome=outcome, duration=self._call.duration, reference=record.reference, error=error
            )
        finally:
            if self._span is not None:
                _call_safely(self._span.finish, outcome, get_error_code(self._call, error), error)

    async def _send_signal(self, signal: Signal, **arguments: Any) -> None:
        """Send a signal and wait for its receivers.

        Cancelling the call does not stop the sending.
        """
        if not signal.receivers:
            return
        self._previous_task = _running_tasks.spawn_in(
            None, self._deliver_signal(signal, arguments, self._previous_task)
        )
        await asyncio.shield(self._previous_task)

    async def _deliver_signal(
        self, signal: Signal, arguments: dict[str, Any], previous_task: asyncio.Task[None] | None
    ) -> None:
        call = self._call
        signal_name = "call_started" if signal is call_started else "call_finished"
        if previous_task is not None:
            await asyncio.wait([previous_task])

        try:
            async with asyncio.timeout(RECEIVER_TIMEOUT_SECONDS):
                # Run receivers on a separate thread: the thread of the call may still be busy with a cancelled call.
                # Rows written in its transaction may be rolled back. Only a nested call shares the outer call's thread,
                # because waiting for a second thread while holding one could deadlock.
                #
                # A finished call must be reported even if the thread queue is full; a rejected call stays rejected at
                # once.
                unbounded = signal is call_finished and arguments["outcome"] is not Outcome.OVERLOADED
                with self._executor.context(unbounded=unbounded):
                    await signal.asend_robust(sender=call.server, call=call, **arguments)
        except TimeoutError:
            logger.warning(
                "Receivers of %s timed out after %g s and were cancelled", signal_name, RECEIVER_TIMEOUT_SECONDS
            )
        except Overloaded:
            logger.warning("Signal %s was not sent for a call, because all threads are in use", signal_name)
        except BaseException as problem:
            if not is_bug(problem):
                raise
            logger.error("Signal %s could not be sent to all receivers", signal_name, exc_info=problem)


def _call_safely(function: Callable[..., None], *args: Any) -> None:
    try:
        function(*args)
    except Exception:
        logger.exception("Failed to trace a call")
