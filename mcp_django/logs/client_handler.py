"""Log records of a call, for the client of that call."""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, cast

from django.utils.module_loading import import_string

from mcp_django.logs.redaction import redacted
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.types import LEVELS
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.current import current_call
from mcp_django.server.context.notifications import LOGGED, log_params

Redact = Callable[[str, logging.LogRecord], str | None]
EXCLUDED = ("asyncio", "django.db.backends", "mcp_django")
"""Loggers that are for operators: ours, which would speak of what the handler itself does, and SQL with its values."""
MOST = 1000
"""Records of one call that are forwarded."""
_STEPS = (20, 25, 30, 40, 50, 60, 70)
"""Where Python's levels become the protocol's: notice begins at 25, alert at 60, emergency at 70."""


class _Busy(threading.local):
    """Is this thread forwarding a record? What is logged on the way there is not forwarded."""

    here = False


class _NoLock:
    """A lock that nobody has to wait for."""

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


class ClientHandler(logging.Handler):
    """Forwards log records to the client of the call that they are made in, if it wants their level.

    Silent outside of calls. It never waits and never fails what logs: a record for which there is no room is left out,
    and so are those beyond MOST of a call. Exception and stack texts are never sent, an exception among the arguments
    of a record is named by its type, and `redacted` takes out what looks like a secret. Then `redact`, a function or
    its dotted path, is given the text and the record, and returns what may be sent, or None for nothing.

    `exclude` names loggers whose records, and whose children's, stay here; giving it replaces EXCLUDED, except for our
    own. A formatter, if there is one, makes the text.
    """

    def __init__(
        self,
        level: int | str = logging.NOTSET,
        *,
        exclude: Sequence[str] = EXCLUDED,
        redact: Redact | str | None = None,
    ) -> None:
        super().__init__(level)
        self._excluded = tuple({*exclude, "mcp_django"})
        self._redact = redact
        self._busy = _Busy()

    def createLock(self) -> None:  # noqa: N802
        """None: nothing is shared between threads that would need one, and so no thread waits for another."""
        # From Python 3.13 on a handler without a lock is no handler (`logging.Handler.handle`).
        self.lock = _NoLock()  # type: ignore[assignment]

    def emit(self, record: logging.LogRecord) -> None:
        call = current_call()
        if call is None or call.outcome is not None or call.cancelled or self._busy.here:
            return
        level = LEVELS[bisect_right(_STEPS, record.levelno)]
        if not call.hears(level) or call.fate.replaying or call.fate.forwarded > MOST or self._is_excluded(record.name):
            return
        self._busy.here = True
        try:
            self._forward(call, level, record)
        except Exception:
            self.handleError(record)
        finally:
            self._busy.here = False

    def _forward(self, call: Call, level: str, record: logging.LogRecord) -> None:
        if isinstance(self._redact, str):
            # Not before: LOGGING is read before there are apps, whose modules it may be in.
            self._redact = cast(Redact, import_string(self._redact))
        clean = redacted(self._text(record), call)
        text = clean if self._redact is None else self._redact(clean, record)
        if text is None:
            return
        call.fate.forwarded += 1
        if call.fate.forwarded > MOST:
            text = f"More than {MOST} log messages in one call; the rest is left out"
        params = log_params(call, level, text, record.name)
        if params is not None:
            call.outbox.offer(jsonrpc.notification(LOGGED, params))

    def _text(self, record: logging.LogRecord) -> str:
        """What the record says, without tracebacks."""
        record = copy(record)
        record.exc_info = record.exc_text = record.stack_info = None
        record.args = _harmless(record.args)
        return record.getMessage() if self.formatter is None else self.formatter.format(record)

    def _is_excluded(self, name: str) -> bool:
        return any(name == excluded or name.startswith(f"{excluded}.") for excluded in self._excluded)


def _harmless(args: Any) -> Any:
    """Arguments of a record, with exceptions named by their types: their texts may quote anything."""
    if isinstance(args, tuple):
        return tuple(_named(value) for value in args)
    return {name: _named(value) for name, value in args.items()} if isinstance(args, dict) else args


def _named(value: Any) -> Any:
    return type(value).__name__ if isinstance(value, BaseException) else value
