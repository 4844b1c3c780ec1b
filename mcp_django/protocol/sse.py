"""Server-sent events: encoding of streams (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import re

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_BREAKS = re.compile(r"[\r\n]")

KEEP_ALIVE = b": keep-alive\n"
"""Comment that keeps proxies from closing an idle stream.

No empty line follows it: in a stream with event ids, some clients report an empty line as an event without data.
"""


def event(data: bytes, *, event: str = "message", id: str | None = None, retry: int | None = None) -> bytes:
    """Encode an event.

    Each line of `data` becomes a data line; `retry` is in milliseconds.

    Raises:
        ValueError: a line break in `event` or `id`, a NUL in `id`, or a negative `retry`.
    """
    if event == "message" and id is None and retry is None and b"\n" not in data and b"\r" not in data:
        return b"event: message\ndata: %b\n\n" % data

    if _BREAKS.search(event):
        raise ValueError("the type of an event must be one line")

    lines = [b"event: %b" % event.encode()]
    if id is not None:
        if _BREAKS.search(id) or "\0" in id:
            raise ValueError("the id of an event must be one line without NUL")
        lines.append(b"id: %b" % id.encode())
    if retry is not None:
        if retry < 0:
            raise ValueError("retry must not be negative")
        lines.append(b"retry: %d" % retry)

    lines += [b"data: %b" % line for line in _NEWLINE.split(data)]
    return b"\n".join(lines) + b"\n\n"


def with_id(id: bytes, data: bytes) -> bytes:
    """Encode a message with an id. Both must be single lines."""
    return b"event: message\nid: %b\ndata: %b\n\n" % (id, data)


def priming(id: bytes, *, retry: int | None = None) -> bytes:
    """Encode an event with an id and no data.

    It lets the client resume before the first message. `retry` is in milliseconds.
    """
    return b"id: %b\ndata: \n\n" % id if retry is None else b"id: %b\nretry: %d\ndata: \n\n" % (id, retry)
