"""Queue of finished calls between the threads that serve and the thread that writes.

A call costs a look-up of its group, and an append. The queue is bounded: the oldest calls are dropped and counted. Its
tuples refer to no objects that Python's garbage collector follows, because thousands of them would make it run.
"""

import itertools
import random
from collections import deque
from collections.abc import Callable
from time import perf_counter, time
from typing import Any, NamedTuple

from mcp_django.contrib.control_room.options import NO_CALLS, CallSelection, RecordSettings, get_settings
from mcp_django.contrib.control_room.recording.counts import HOUR_SECONDS, MINUTE_SECONDS
from mcp_django.contrib.control_room.recording.entries import (
    FAILED_OUTCOMES,
    CallDetail,
    CallEntry,
    CallGroup,
    build_detail,
    build_group,
    get_method,
    has_question,
)
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.errors import MCPError, Overloaded
from mcp_django.observability import Call, Outcome
from mcp_django.protocol.jsonrpc import Request

logger = get_logger("mcp_django.records")

MAX_GROUPS = 10_000
"""Number of groups above which a process forgets all of them."""

_OK = Outcome.OK


class DrainedCalls(NamedTuple):
    """Calls that were taken from the queue."""

    durations: list[tuple[float, CallGroup, list[float]]]
    """Start of a minute, group, and seconds of each call."""
    entries: list[CallEntry]
    """Calls that were selected for a row of their own."""


class RecordQueue:
    """Queue of one process. Any thread records, one drains."""

    def __init__(self, on_enabled: Callable[[], None]) -> None:
        """Create an empty queue.

        `on_enabled` is called before a call is recorded, after the settings were read.
        """
        self._on_enabled = on_enabled
        self.reset()

    def reset(self) -> None:
        """Forget all calls, groups and settings."""
        self.dropped = 0
        """Calls that were dropped."""
        self._options: RecordSettings | None = None
        self._is_enabled = True
        self._selects_all = False
        self._entries: deque[tuple[float, int, float, CallDetail | None]] = deque()
        """Time, number of the group, seconds and detail of each call."""
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._groups: dict[int, CallGroup] = {}
        self._old_numbers: list[int] = []
        """Groups that get no more calls. Calls that wait in the queue may belong to them."""
        self._next_number = itertools.count()
        self._groups_hour = 0.0

    @property
    def options(self) -> RecordSettings:
        """The settings of the last call, or the current ones."""
        return self._options or get_settings()

    def forget_settings(self) -> None:
        """Read the settings again before the next call."""
        self._options = None

    def record(self, call: Call, outcome: Outcome, error: MCPError | Overloaded | None) -> None:
        """Record a finished call. Notifications are not recorded. Never raises.

        Each call of the server comes here, so the common case does no more than needed.
        """
        try:
            options = self._options
            if options is None:
                options = self._prepare()
            if not self._is_enabled or type(call.message) is not Request:
                return
            seconds = perf_counter() - call.started_at
            record = call.record
            if (
                outcome is _OK
                and seconds < options.slow
                and not self._selects_all
                and not record.waits
                and record.conversation_id is None
            ):
                detail = None
            else:
                is_selected = _selects(call, outcome, seconds, options)
                detail = build_detail(call, error, seconds, options) if is_selected else None

            entries = self._entries
            if len(entries) >= options.buffer:
                self._drop_oldest()
            is_plain = error is None and not record.is_continued
            method = call.message.method if is_plain else get_method(call, error)
            key = (call.server.alias, method, record.target, outcome, call.connection.principal.key)
            number = self._numbers.get(key)
            if number is None:
                number = self._add_group(key, build_group(call, method, outcome))
            entries.append((time(), number, seconds, detail))
        except Exception:
            logger.exception("A call could not be recorded")

    def _prepare(self) -> RecordSettings:
        options = get_settings()
        exceptions = any(tool.calls is not None and tool.calls.share for tool in options.tools.values())
        self._selects_all = bool(options.calls.share) or exceptions
        self._options = options
        self._is_enabled = options.rollups or options.calls != NO_CALLS or bool(options.tools)
        if self._is_enabled:
            self._on_enabled()
        return options

    def _add_group(self, key: tuple[Any, ...], group: CallGroup) -> int:
        """Return the number of a new group. Two threads may add the same one."""
        number = next(self._next_number)
        self._groups[number] = group
        self._numbers[key] = number
        return number

    def _drop_oldest(self) -> None:
        try:
            self._entries.popleft()
        except IndexError:
            return  # the writing thread has emptied the queue
        self.dropped += 1

    def drain(self) -> DrainedCalls:
        """Remove and return the calls that wait now."""
        durations: dict[tuple[float, int], list[float]] = {}
        entries = []
        popleft = self._entries.popleft
        for _ in range(len(self._entries)):
            try:
                at, number, seconds, detail = popleft()
            except IndexError:
                break
            key = (at // MINUTE_SECONDS, number)
            found = durations.get(key)
            if found is None:
                durations[key] = [seconds]
            else:
                found.append(seconds)
            if detail is not None and (group := self._groups.get(number)) is not None:
                entries.append(CallEntry(at, group, seconds, detail))

        drained = DrainedCalls([], entries)
        for (minute, number), taken in durations.items():
            group = self._groups.get(number)
            if group is None:  # its thread slept between two renewals of the groups
                self.dropped += len(taken)
            else:
                drained.durations.append((minute * MINUTE_SECONDS, group, taken))
        self._renew_groups(time())
        return drained

    def _renew_groups(self, now: float) -> None:
        """Forget the groups at the end of the hour, and when there are many.

        Calls that were recorded with an earlier group are counted by the next write.
        """
        hour = now // HOUR_SECONDS
        if hour == self._groups_hour and len(self._numbers) <= MAX_GROUPS:
            return
        self._groups_hour = hour
        self._numbers = {}
        for number in self._old_numbers:
            del self._groups[number]
        self._old_numbers = list(self._groups)


def _selects(call: Call, outcome: Outcome, seconds: float, options: RecordSettings) -> bool:
    """Return True if the call gets a row of its own."""
    selection = _get_selection(call, options)
    if (selection.failed and outcome in FAILED_OUTCOMES) or (selection.slow and seconds >= options.slow):
        return True
    if selection.asked and has_question(call, outcome):
        return True
    return selection.share >= 1 or (selection.share > 0 and random.random() < selection.share)  # noqa: S311  # a sample


def _get_selection(call: Call, options: RecordSettings) -> CallSelection:
    exception = options.tools.get(call.record.target or "") if options.tools else None
    return options.calls if exception is None or exception.calls is None else exception.calls
