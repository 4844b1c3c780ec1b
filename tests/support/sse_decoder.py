"""Decoder of server-sent events (WHATWG HTML, section 9.2), for tests that read streams as clients do."""

import re
from typing import NamedTuple

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """A received event."""

    event: str
    """Event type; the default is ``message``."""
    data: bytes
    """Data lines of the event, joined by newlines."""
    id: str | None
    """Last event id of the stream so far, or None."""
    retry: int | None
    """Reconnection delay of this event in milliseconds, or None."""


class Decoder:
    """Decodes a stream that arrives in chunks of any size.

    `last_event_id` is the value that a reconnecting client sends. `retry` is the last reconnection delay in
    milliseconds. Both are None until the stream sets them. Data is returned as undecoded bytes.
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

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Decode the next bytes and return the events that they complete.

        Raises:
            ValueError: one event is larger than `max_event` bytes; the decoder cannot continue.
        """
        if not chunk:
            return []

        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        # A CR at the end has ended its line. A following LF belongs to it.
        self._after_cr = chunk.endswith(b"\r") if chunk else False
        lines = _NEWLINE.split(chunk)
        rest = lines.pop()

        events: list[ServerSentEvent] = []
        for line in lines:
            if self._pending:
                line = b"".join([*self._pending, line])
                self._pending = []
                self._pending_size = 0
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

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        # Set only at the empty line: a client that disconnects within an event has not received it.
        self.last_event_id = self._id
        if self._data:
            name = self._event.decode(errors="replace") or "message"
            events.append(ServerSentEvent(name, b"\n".join(self._data), self.last_event_id, self._retry))
        self._reset()
