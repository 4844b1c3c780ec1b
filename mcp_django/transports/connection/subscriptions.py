"""Subscriptions of a connection (stateless era, basic/patterns/subscriptions)."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.subscriptions.listen import Subscription


class ChangePump:
    """Sends the messages of subscriptions when the connection has room."""

    def __init__(
        self,
        channel: Outbox,
        subscriptions: dict[jsonrpc.Id, Subscription],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """Set the queue, the subscriptions by request id, and the task starter."""
        self._channel, self._subscriptions, self._spawn = channel, subscriptions, spawn
        self._pumping: set[jsonrpc.Id] = set()

    def begin(self, subscription: Subscription, *, ends: bool) -> None:
        """Add a started subscription; with `is_closing`, flush and close it."""
        subscription.wake = partial(self._wake, subscription.id)
        if ends:
            subscription.end()
        self._wake(subscription.id)

    def end(self) -> None:
        """Close all subscriptions after their pending messages."""
        for subscription in list(self._subscriptions.values()):
            subscription.end()

    def cancel(self) -> None:
        """Cancel all subscriptions at once."""
        for subscription in list(self._subscriptions.values()):
            subscription.cancel()
        self._subscriptions.clear()

    def _wake(self, id: jsonrpc.Id) -> None:
        if id not in self._pumping and id in self._subscriptions:
            self._pumping.add(id)
            self._spawn(self._pass_on(id))

    async def _pass_on(self, id: jsonrpc.Id) -> None:
        try:
            while (subscription := self._subscriptions.get(id)) is not None:
                await self._channel.room()
                messages = await subscription.take()
                for message in messages or ():
                    self._channel.put_nowait(message)
                if subscription.is_over:
                    if self._subscriptions.get(id) is subscription:
                        del self._subscriptions[id]
                elif not messages:
                    return
        finally:
            self._pumping.discard(id)
