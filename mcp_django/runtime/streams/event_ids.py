"""Ids of events on the streams of a session: `<stream>.<number>.<mac>`.

The authentication code is bound to the session, with a key derived from SECRET_KEY. Any worker can reject an id that
was changed, invented or taken from another session, without a lookup.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from mcp_django.runtime.sealing import Stamp

OWN = "s"
"""Name of a session's own stream, which uses the numbers of the event log.

The names of call streams are longer.
"""
_NAME = re.compile(r"([A-Za-z0-9_-]{1,32})\.(0|[1-9][0-9]{0,18})")

Ids = Callable[[int], bytes]
"""Function that returns the id of an event number, for one stream of one session."""


class EventId(NamedTuple):
    """Verified event id: stream name and number."""

    stream: str
    n: int


class EventIds:
    """Encoder and parser of event ids."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp

    def of(self, session: str, stream: str) -> Ids:
        """Return a function that creates the ids of one stream of a session."""
        mark = self._stamp.mark
        return lambda n: mark(f"{stream}.{n}", session).encode()

    def read(self, session: str, id: bytes) -> EventId | None:
        """Return the content of an id; None unless it was created for this session."""
        name = self._stamp.read(id.decode("latin-1"), session)
        found = None if name is None else _NAME.fullmatch(name)
        return None if found is None else EventId(found[1], int(found[2]))
