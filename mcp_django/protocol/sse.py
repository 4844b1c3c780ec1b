"""Server-sent events (WHATWG HTML, section 9.2): bytes for an event, and bytes back to events as they arrive."""

from __future__ import annotations

import re
from typing import NamedTuple

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_BREAKS = re.compile(r"[\r\n]")
_BOM = b"\xef\xbb\xbf"

KEEP_ALIVE = b": keep-alive\n"
"""A comment that keeps proxies from closing a quiet stream. No empty line follows it: where events have ids, an empty
line alone makes some clients' parsers report an event without data."""


class Event(NamedTuple):
    """One event that was received."""

    event: str
    """Its type; ``message`` when the stream names none."""
    data: bytes
    """Its data lines, joined by newlines."""
    id: str | None
    """The last event id of the stream so far, None before there is one."""
    retry: int | None
    """Milliseconds to wait before reconnecting, when this event says so."""


def event(data: bytes, *, event: str = "message", id: str | None = None, retry: int | None = None) -> bytes:
    """Encode one event; each line of `data` becomes a data line, `retry` is in milliseconds.

    Raises:
        ValueError: a line break in `event` or `id`, a NUL in `id`, or a negative `retry`.
    """
    if event == "message" and id is None and retry is None and b"\n" not in data and b"\r" not in data:
        return b"event: message\ndata: %b\n\n" % data
    if _BREAKS.search(event):
        raise ValueError("the type of an event is one line")
    lines = [b"event: %b" % event.encode()]
    if id is not None:
        if _BREAKS.search(id) or "\0" in id:
            raise ValueError("the id of an event is one line without NUL")
        lines.append(b"id: %b" % id.encode())
    if retry is not None:
        if retry < 0:
            raise ValueError("retry is a number of milliseconds")
        lines.append(b"retry: %d" % retry)
    lines += [b"data: %b" % line for line in _NEWLINE.split(data)]
    return b"\n".join(lines) + b"\n\n"


def numbered(id: bytes, data: bytes) -> bytes:
    """Encode a message with an id; both are known to be one line."""
    return b"event: message\nid: %b\ndata: %b\n\n" % (id, data)


def priming(id: bytes, *, retry: int | None = None) -> bytes:
    """Encode an event that carries an id and no data: the client knows from where to resume before there is a message.
    `retry` is in milliseconds.
    """
    return b"id: %b\ndata: \n\n" % id if retry is None else b"id: %b\nretry: %d\ndata: \n\n" % (id, retry)


def comment(text: str = "") -> bytes:
    """Encode a comment, which receivers ignore."""
    return b"".join(b": %b\n" % line for line in _NEWLINE.split(text.encode())) + b"\n"


class Decoder:
    """Reads a stream that comes in pieces of any size.

    `last_event_id` is what a reconnecting client sends back, `retry` the last reconnection time in milliseconds; both
    are None until the stream says them. Data is given as bytes, undecoded.
    """

    def __init__(self, *, max_event: int = 16 * 1024 * 1024) -> None:
        self.last_event_id: str | None = None
        self.retry: int | None = None
        self._max_event = max_event
        self._at_start = True
        self._after_cr = False
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._reset()

    def _reset(self) -> None:
        self._event = b""
        self._id = self.last_event_id
        self._data: list[bytes] = []
        self._data_size = 0
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and return the events they complete.

        Raises:
            ValueError: one event is larger than `max_event` bytes; the stream cannot be read any further.
        """
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        # A CR at the end has ended its line; an LF that comes next belongs to it.
        self._after_cr = chunk.endswith(b"\r") if chunk else False
        lines = _NEWLINE.split(chunk)
        rest = lines.pop()
        events: list[Event] = []
        for line in lines:
            if self._pending:
                line = b"".join([*self._pending, line])
                self._pending, self._pending_size = [], 0
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)
            if line:
                self._field(line)
            else:
                self._dispatch(events)
        if rest:
            self._pending.append(rest)
            self._pending_size += len(rest)
            self._bounded(self._data_size + self._pending_size)
        return events

    def _bounded(self, size: int) -> None:
        if size > self._max_event:
            raise ValueError(f"an event is larger than {self._max_event} bytes")

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
            self._bounded(self._data_size)
        elif name == b"event":
            self._event = value
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit() and len(value) <= 15:
            self.retry = self._retry = int(value)

    def _dispatch(self, events: list[Event]) -> None:
        # Not before the empty line: who is cut off within an event has not received it.
        self.last_event_id = self._id
        if self._data:
            name = self._event.decode(errors="replace") or "message"
            events.append(Event(name, b"\n".join(self._data), self.last_event_id, self._retry))
        self._reset()
