"""Waiting requests: not started before their session or the client is ready."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.server.calls.session import Cancellable
from mcp_django.transports.connection.message_kinds import id_of, is_request, opens


class Waiting:
    """A waiting request in the table of active calls, where it can be cancelled."""

    __slots__ = ("_loop", "taken_back")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.taken_back = loop, False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop on which the request waits."""
        return self._loop

    def cancel(self) -> None:
        """Cancel the request before it starts."""
        self.taken_back = True


@contextmanager
def waiting(raw: Any, calls: dict[jsonrpc.Id, Cancellable]) -> Iterator[Waiting]:
    """Register a waiting request as cancellable.

    `initialize` must not be cancelled (basic/utilities/cancellation). An id that is in use belongs to another request.
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
