"""Log records: the attributes of the current call, and a limit for repeated failures."""

import logging
import threading

from mcp_django.aio.clock import monotonic
from mcp_django.server.calls.call import current_call
from mcp_django.server.calls.log_sanitizer import get_log_fields

FIELDS = ("mcp_server", "mcp_method", "mcp_name", "mcp_principal", "mcp_call_id", "mcp_trace_id")
ABSENT = "-"


class CallFilter(logging.Filter):
    """Filter that sets the attributes FIELDS of each record from the current call.

    The value is "-" without a call. All records pass. Add it to a handler: a logger's filters apply to records of that
    very logger only.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        call = current_call()
        fields = {} if call is None else get_log_fields(call)
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, fields.get(name, ABSENT))
        return True


class RateLimitedLogger:
    """Logger of one kind of repeated failure, with at most one record in `seconds`. Thread-safe."""

    def __init__(self, logger: logging.Logger, seconds: float = 60.0) -> None:
        self._logger = logger
        self._seconds = seconds
        self._next_log_time = 0.0
        self._lock = threading.Lock()

    def log(self, level: int, message: str, *args: object, exc_info: bool = False) -> None:
        """Log a record, unless one was logged a short time ago."""
        with self._lock:
            now = monotonic()
            is_due = now >= self._next_log_time
            if is_due:
                self._next_log_time = now + self._seconds
        if is_due:
            self._logger.log(level, message, *args, exc_info=exc_info)
