"""Ids of events on the streams of a session: `<stream>.<number>.<mac>`.

The authentication code is bound to the session, with a key derived from SECRET_KEY. Any worker can reject an id that
was changed, invented or taken from another session, without a lookup.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from mcp_django.runtime.sealing import NameSigner

SESSION_STREAM = "s"
"""Name of a session's own stream, which uses the numbers of the event log.

The names of call streams are longer.
"""
_EVENT_NAME = re.compile(r"([A-Za-z0-9_-]{1,32})\.(0|[1-9][0-9]{0,18})")

EventIdFactory = Callable[[int], bytes]
"""Function that returns the id of an event number, for one stream of one session."""


class EventId(NamedTuple):
    """Verified event id: stream name and number."""

    stream: str
    number: int


class EventIdCodec:
    """Encoder and parser of event ids."""

    def __init__(self, signer: NameSigner) -> None:
        self._signer = signer

    def create_factory(self, session: str, stream: str) -> EventIdFactory:
        """Return a function that creates the ids of one stream of a session."""
        sign = self._signer.sign
        return lambda n: sign(f"{stream}.{n}", session).encode()

    def parse(self, session: str, id: bytes) -> EventId | None:
        """Return the content of an id; None unless it was created for this session."""
        name = self._signer.unsign(id.decode("latin-1"), session)
        match = None if name is None else _EVENT_NAME.fullmatch(name)
        return None if match is None else EventId(match[1], int(match[2]))
