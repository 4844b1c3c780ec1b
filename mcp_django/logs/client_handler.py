"""Logging handler that forwards records of a call to its client."""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, cast

from django.utils.module_loading import import_string

from mcp_django.logs.redaction import redacted
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.server.calls.call import Call, current_call
from mcp_django.server.context.notifications import LOG_MESSAGE_METHOD, build_log_params

RedactFunction = Callable[[str, logging.LogRecord], str | None]
EXCLUDED_LOGGERS = ("asyncio", "django.db.backends", "mcp_django")
"""Loggers for operators only: this package's own, and SQL with its values.

Own records would describe the forwarding itself.
"""
MAX_FORWARDED_RECORDS = 1000
"""Maximum number of records that are forwarded per call."""
_LEVEL_THRESHOLDS = (20, 25, 30, 40, 50, 60, 70)
"""Python levels at which the protocol's next level starts.

Notice starts at 25, alert at 60, emergency at 70.
"""


class _ForwardingState(threading.local):
    """Flag of the current thread: True while it forwards a record.

    Nested records are not forwarded.
    """

    is_forwarding = False


class _NullLock:
    """Lock that never blocks."""

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


class ClientHandler(logging.Handler):
    """Handler that forwards log records to the client of the current call.

    The client chooses the level. Outside of calls the handler does nothing. It neither blocks nor raises: records are
    dropped if the client's queue is full, or after `MAX_FORWARDED_RECORDS` of a call. Tracebacks and stack texts are
    never sent. Exceptions among the arguments are replaced by their type names, and `redacted` removes secrets. Then
    `redact`, a function or its dotted path, receives the text and the record. It returns the text to send, or None.

    `exclude` names loggers that are not forwarded, with their children. It replaces `EXCLUDED_LOGGERS`, except for this
    package's loggers. The handler's formatter, if any, creates the text.
    """

    def __init__(
        self,
        level: int | str = logging.NOTSET,
        *,
        exclude: Sequence[str] = EXCLUDED_LOGGERS,
        redact: RedactFunction | str | None = None,
    ) -> None:
        super().__init__(level)
        self._excluded = tuple({*exclude, "mcp_django"})
        self._redact = redact
        self._forwarding = _ForwardingState()

    def createLock(self) -> None:  # noqa: N802
        """Set a lock that never blocks, because the handler has no shared state."""
        # Python 3.13 requires a lock object (`logging.Handler.handle`).
        self.lock = _NullLock()  # type: ignore[assignment]

    def emit(self, record: logging.LogRecord) -> None:
        call = current_call()
        if call is None or call.record.outcome is not None or call.record.cancelled or self._forwarding.is_forwarding:
            return
        level = LOG_LEVELS[bisect_right(_LEVEL_THRESHOLDS, record.levelno)]
        if (
            not call.wants_log_level(level)
            or call.record.replaying
            or call.record.forwarded_log_count > MAX_FORWARDED_RECORDS
            or self._is_excluded(record.name)
        ):
            return
        self._forwarding.is_forwarding = True
        try:
            self._forward(call, level, record)
        except Exception:
            self.handleError(record)
        finally:
            self._forwarding.is_forwarding = False

    def _forward(self, call: Call, level: str, record: logging.LogRecord) -> None:
        if isinstance(self._redact, str):
            # Imported on first use: LOGGING is configured before the app registry is ready.
            self._redact = cast(RedactFunction, import_string(self._redact))
        redacted_text = redacted(self._format_record(record), call)
        text = redacted_text if self._redact is None else self._redact(redacted_text, record)
        if text is None:
            return
        call.record.forwarded_log_count += 1
        if call.record.forwarded_log_count > MAX_FORWARDED_RECORDS:
            text = f"More than {MAX_FORWARDED_RECORDS} log messages in one call; the rest is left out"
        params = build_log_params(call, level, text, record.name)
        if params is not None:
            call.outbox.put_if_room(jsonrpc.notification(LOG_MESSAGE_METHOD, params))

    def _format_record(self, record: logging.LogRecord) -> str:
        """Return the text of a record without tracebacks."""
        record = copy(record)
        record.exc_info = record.exc_text = record.stack_info = None
        record.args = _sanitize_args(record.args)
        return record.getMessage() if self.formatter is None else self.formatter.format(record)

    def _is_excluded(self, name: str) -> bool:
        return any(name == excluded or name.startswith(f"{excluded}.") for excluded in self._excluded)


def _sanitize_args(args: Any) -> Any:
    """Return the arguments of a record with exceptions replaced by their type names.

    Their texts may contain anything.
    """
    if isinstance(args, tuple):
        return tuple(_replace_exception(value) for value in args)
    return {name: _replace_exception(value) for name, value in args.items()} if isinstance(args, dict) else args


def _replace_exception(value: Any) -> Any:
    return type(value).__name__ if isinstance(value, BaseException) else value
