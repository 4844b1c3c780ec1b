"""The ids of events on the streams of a session: `<stream>.<n>.<mac>`.

The code at the end is bound to the session, under a key that comes of SECRET_KEY. So an id that was changed, made up or
taken from another session is refused before anything is looked up, on any worker.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from mcp_django.runtime.sealing import Stamp

OWN = "s"
"""The name of a session's own stream, whose numbers are those of the event log. A call's stream has a longer name."""
_NAME = re.compile(r"([A-Za-z0-9_-]{1,32})\.(0|[1-9][0-9]{0,18})")

Ids = Callable[[int], bytes]
"""Gives the id of the event with a number, on one stream of one session."""


class EventId(NamedTuple):
    """An event of ours: of which stream, and its number there."""

    stream: str
    n: int


class EventIds:
    """Makes and reads the ids of a project's events."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp

    def of(self, session: str, stream: str) -> Ids:
        """What gives the ids of a stream of the session with this key."""
        mark = self._stamp.mark
        return lambda n: mark(f"{stream}.{n}", session).encode()

    def read(self, session: str, id: bytes) -> EventId | None:
        """What an id names; None unless it was made for this session."""
        name = self._stamp.read(id.decode("latin-1"), session)
        found = None if name is None else _NAME.fullmatch(name)
        return None if found is None else EventId(found[1], int(found[2]))
