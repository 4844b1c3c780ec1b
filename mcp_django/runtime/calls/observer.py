"""Observation of calls: access log, signals and traces.

Signals are `call_started` and `call_finished`. Without receivers and tracing, a call costs two checks of receiver lists
and one of the logger's level.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

from django.dispatch import Signal

from mcp_django.protocol.errors import InternalError, MCPError, ResourceNotFound
from mcp_django.runtime.calls.tracing import CallSpan, Tracing
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.internal_errors import is_bug
from mcp_django.server.calls.log_sanitizer import fields_of, session_of
from mcp_django.server.calls.outcome import Outcome
from mcp_django.server.ports import Attendance, Executor, Overloaded
from mcp_django.signals import call_finished, call_started

calls = logging.getLogger("mcp_django.calls")
logger = logging.getLogger("mcp_django.server")

PATIENCE = 5.0
"""Maximum seconds that a call waits for the receivers of a signal.

They are cancelled afterwards.
"""
LEVELS = {
    Outcome.OK: logging.INFO,
    Outcome.TOOL_ERROR: logging.INFO,
    Outcome.INPUT_REQUIRED: logging.INFO,
    Outcome.ERROR: logging.INFO,
    Outcome.CANCELLED: logging.INFO,
    Outcome.TIMEOUT: logging.WARNING,
    Outcome.OVERLOADED: logging.WARNING,
    Outcome.BUG: logging.ERROR,
}
_OK, _INFO = Outcome.OK, logging.INFO
_BARE = re.compile(r"[\w.,:/|@+~*%?…-]+")
_WHAT = ("mcp_method", "mcp_name")
_SAID = frozenset({*_WHAT, "mcp_outcome", "mcp_duration_ms"})
_sending: set[asyncio.Task[None]] = set()
"""Strong references, because the loop keeps weak ones only."""


class CallObserver:
    """Implementation of `ports.Observer`.

    `executor` runs synchronous receivers. `tracer` is None if tracing is unavailable.
    """

    def __init__(self, executor: Executor, tracing: Tracing | None = None) -> None:
        self._executor, self._tracing = executor, tracing

    def attend(self, call: Call) -> Attendance | None:
        tracing = self._tracing
        span = None if tracing is None else tracing.attend(call)
        if span is None and not call_started.receivers and not call_finished.receivers:
            return None
        return _Attendance(call, self._executor, span)

    def over(self, call: Call, outcome: Outcome, problem: MCPError | Overloaded | None) -> None:
        """Log a call on `mcp_django.calls`; notifications are logged at DEBUG."""
        level = _INFO if outcome is _OK else LEVELS[outcome]
        if not calls.isEnabledFor(level):
            return
        if call.id is None:
            level = logging.DEBUG

        fields = {**fields_of(call), **_ending(call, outcome, problem)}
        what = " ".join(_quoted(fields[name]) for name in _WHAT if name in fields)
        rest = " ".join(f"{name[4:]}={_quoted(str(value))}" for name, value in fields.items() if name not in _SAID)
        calls.log(level, "%s: %s in %.1f ms, %s", what, outcome.value, fields["mcp_duration_ms"], rest, extra=fields)


def code_of(call: Call, problem: MCPError | Overloaded | None) -> int | None:
    """Return the code of the JSON-RPC error that the client received, or None."""
    if isinstance(problem, ResourceNotFound):
        return call.revision.resource_not_found
    if isinstance(problem, Overloaded):
        return InternalError.code
    return None if problem is None else problem.code


def _ending(call: Call, outcome: Outcome, problem: MCPError | Overloaded | None) -> dict[str, Any]:
    found = {
        "mcp_session": session_of(call),
        "mcp_revision": call.revision.version,
        "mcp_outcome": outcome.value,
        "mcp_duration_ms": round(call.duration * 1000, 3),
        "mcp_error_code": code_of(call, problem),
        "mcp_reference": call.fate.reference,
    }
    return {name: value for name, value in found.items() if value is not None}


def _quoted(label: str) -> str:
    if _BARE.fullmatch(label):
        return label
    quoted = label.replace('"', '\\"')
    return f'"{quoted}"'


class _Attendance:
    """Implementation of `ports.CallObservation`."""

    __slots__ = ("_before", "_call", "_executor", "_span")

    def __init__(self, call: Call, executor: Executor, span: CallSpan | None) -> None:
        self._call, self._executor, self._span = call, executor, span
        self._before: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        if self._span is not None:
            _try(self._span.begin)
        await self._send(call_started)

    async def end(self, outcome: Outcome, problem: MCPError | Overloaded | None) -> None:
        fate = self._call.fate
        try:
            await self._send(
                call_finished, outcome=outcome, duration=self._call.duration, reference=fate.reference, error=problem
            )
        finally:
            if self._span is not None:
                _try(self._span.end, outcome, code_of(self._call, problem))

    async def _send(self, signal: Signal, **told: Any) -> None:
        """Send a signal and wait for its receivers.

        Cancelling the call does not stop the sending.
        """
        if not signal.receivers:
            return
        sending = asyncio.get_running_loop().create_task(self._deliver(signal, told, self._before))
        self._before = sending
        _sending.add(sending)
        sending.add_done_callback(_sending.discard)
        await asyncio.shield(sending)

    async def _deliver(self, signal: Signal, told: dict[str, Any], before: asyncio.Task[None] | None) -> None:
        call = self._call
        what = "call_started" if signal is call_started else "call_finished"
        if before is not None:
            await asyncio.wait([before])

        try:
            async with asyncio.timeout(PATIENCE):
                # Run receivers on a separate thread: the thread of the call may still be busy with a cancelled call.
                # Rows written in its transaction may be rolled back. Only a nested call shares the outer call's thread,
                # because waiting for a second thread while holding one could deadlock.
                #
                # A finished call must be reported even if the thread queue is full; a rejected call stays rejected at
                # once.
                patient = signal is call_finished and told["outcome"] is not Outcome.OVERLOADED
                lease = self._executor.enter(patient=patient)
                try:
                    await signal.asend_robust(sender=call.server, call=call, **told)
                finally:
                    lease.close()
        except TimeoutError:
            logger.warning("Receivers of %s timed out after %g s and were cancelled", what, PATIENCE)
        except Overloaded:
            logger.warning("Signal %s was not sent for a call, because all threads are in use", what)
        except BaseException as problem:
            if not is_bug(problem):
                raise
            logger.error("Signal %s could not be sent to all receivers", what, exc_info=problem)


def _try(act: Callable[..., None], *given: Any) -> None:
    try:
        act(*given)
    except Exception:
        logger.exception("Failed to trace a call")
