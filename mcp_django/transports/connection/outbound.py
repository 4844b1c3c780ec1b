"""Messages to the client of a connection: of its calls, and of its subscriptions."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.subscriptions.listen import Subscription

_PROGRESS_PREFIX = jsonrpc.notification("notifications/progress")[:-1]


def is_progress(message: bytes) -> bool:
    """Return True for an encoded progress notification."""
    return message.startswith(_PROGRESS_PREFIX)


def split_after_progress(messages: Sequence[bytes]) -> list[list[bytes]]:
    """Split messages before each one that follows progress and is no progress itself.

    Clients of the TypeScript SDK drop progress that they read together with the answer of its call: they handle
    notifications later than answers, and an answer ends the progress of its call.
    """
    groups: list[list[bytes]] = []
    follows_progress = False
    for message in messages:
        progresses = is_progress(message)
        if not groups or (follows_progress and not progresses):
            groups.append([])
        groups[-1].append(message)
        follows_progress = progresses
    return groups


class ConnectionSink:
    """A `MessageSink` that writes to the queue of a connection and stores nothing."""

    __slots__ = ("_is_aborted", "_on_finished", "_outbox")

    def __init__(self, outbox: Outbox, on_finished: Callable[[], None]) -> None:
        self._outbox = outbox
        self._on_finished = on_finished
        self._is_aborted = False

    async def put(self, message: bytes) -> None:
        """Send a message; wait while the client is slow."""
        if not self._is_aborted:
            await self._outbox.wait_for_room()
        self.put_nowait(message)

    def put_nowait(self, message: bytes) -> None:
        """Send a message without waiting."""
        if not self._is_aborted:
            self._outbox.put_nowait(message)

    def has_room(self) -> bool:
        """Return True if the client reads fast enough."""
        return self._outbox.has_room()

    def put_cancellation(self, message: bytes) -> None:
        """Send a message even after an abort, because the client is still connected."""
        self._outbox.put_nowait(message)

    def finish(self, message: bytes | None = None) -> None:
        """Send the last message, if any."""
        if message is not None:
            self.put_nowait(message)
        self._on_finished()

    def abort(self) -> None:
        """Abort: send nothing more for the call."""
        self._is_aborted = True

    def disconnect_reader(self, retry: float | None) -> bool:
        """Return False: a client cannot reconnect to this connection."""
        return False


class SubscriptionSender:
    """Sends the messages of subscriptions when the connection has room.

    Stateless era (basic/patterns/subscriptions).
    """

    def __init__(
        self,
        outbox: Outbox,
        subscriptions: dict[jsonrpc.Id, Subscription],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """Set the queue, the subscriptions by request id, and the task starter."""
        self._outbox = outbox
        self._subscriptions = subscriptions
        self._spawn = spawn
        self._sending_ids: set[jsonrpc.Id] = set()

    def add(self, subscription: Subscription, *, is_closing: bool) -> None:
        """Add a started subscription; with `is_closing`, flush and close it."""
        subscription.wake = partial(self._wake, subscription.id)
        if is_closing:
            subscription.close()
        self._wake(subscription.id)

    def close_all(self) -> None:
        """Close all subscriptions after their pending messages."""
        for subscription in list(self._subscriptions.values()):
            subscription.close()

    def cancel_all(self) -> None:
        """Cancel all subscriptions at once."""
        for subscription in list(self._subscriptions.values()):
            subscription.cancel()
        self._subscriptions.clear()

    def _wake(self, id: jsonrpc.Id) -> None:
        if id not in self._sending_ids and id in self._subscriptions:
            self._sending_ids.add(id)
            self._spawn(self._send_pending(id))

    async def _send_pending(self, id: jsonrpc.Id) -> None:
        try:
            while (subscription := self._subscriptions.get(id)) is not None:
                await self._outbox.wait_for_room()
                messages = await subscription.take_messages()
                for message in messages or ():
                    self._outbox.put_nowait(message)
                if subscription.is_closed:
                    if self._subscriptions.get(id) is subscription:
                        del self._subscriptions[id]
                elif not messages:
                    return
        finally:
            self._sending_ids.discard(id)
