"""Waiting requests: not started before their session or the client is ready."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.server.calls.session import Cancellable
from mcp_django.transports.connection.message_kinds import get_id, is_initialize, is_request


class WaitingRequest:
    """A waiting request in the table of active calls, where it can be cancelled."""

    __slots__ = ("_loop", "is_cancelled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_cancelled = False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop on which the request waits."""
        return self._loop

    def cancel(self) -> None:
        """Cancel the request before it starts."""
        self.is_cancelled = True


@contextmanager
def track_waiting(raw: Any, active_calls: dict[jsonrpc.Id, Cancellable]) -> Iterator[WaitingRequest]:
    """Register a waiting request as cancellable.

    `initialize` must not be cancelled (basic/utilities/cancellation). An id that is in use belongs to another request.
    """
    request, id = WaitingRequest(asyncio.get_running_loop()), get_id(raw)
    if id is None or id in active_calls or not is_request(raw) or is_initialize(raw):
        yield request
        return
    active_calls[id] = request
    try:
        yield request
    finally:
        if active_calls.get(id) is request:
            del active_calls[id]
