"""Requests that are not calls yet: they wait for their session, or for a client that does not read."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.server.calls.session import Cancellable
from mcp_django.transports.connection.message_kinds import id_of, is_request, opens


class Waiting:
    """A request that waits. It can be taken back like a call, so it is in the channel's table of those."""

    __slots__ = ("_loop", "taken_back")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.taken_back = loop, False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it waits on."""
        return self._loop

    def cancel(self) -> None:
        """It is not to be begun."""
        self.taken_back = True


@contextmanager
def waiting(raw: Any, calls: dict[jsonrpc.Id, Cancellable]) -> Iterator[Waiting]:
    """While inside, the client can take the message back, if it is a request: `initialize` must not be
    (basic/utilities/cancellation), and an id that is in use is another's.
    """
    one, id = Waiting(asyncio.get_running_loop()), id_of(raw)
    if id is None or id in calls or not is_request(raw) or opens(raw):
        yield one
        return
    calls[id] = one
    try:
        yield one
    finally:
        if calls.get(id) is one:
            del calls[id]
