"""`subscriptions/listen`: streams of change notifications in the stateless era.

A `Subscription` is a plain object without a task. Changes mark it, and its transport takes the notifications when it
can send. A slow client therefore costs at most one mark per changed item, and an idle client costs one object. The
`SubscriptionRegistry` of a server and a loop matches changes to subscriptions, and listens to changes once for all.
"""

import asyncio
import contextvars
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.meta import SUBSCRIPTION_ID
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.log_sanitizer import label
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.outcome import Fate, Outcome
from mcp_django.server.calls.pending import over
from mcp_django.server.ports import Changes, Overloaded, Principal
from mcp_django.server.subscriptions.filter import (
    ACKNOWLEDGED,
    LISTS,
    RESOURCE_UPDATED,
    Update,
    Wanted,
    concerns,
    covering,
    is_free,
    may_read,
    readable,
)
from mcp_django.server.subscriptions.upstream import Followed, may_follow

if TYPE_CHECKING:
    from mcp_django.server.server import Server

LISTENING = "subscriptions/listen"
WAITING = 64
"""Maximum number of pending updates of parts, on top of the subscribed resources."""

RETRY = 1.0
"""Seconds before an overloaded permission check is retried."""


class Subscription:
    """A stream of changes, from its request to its end.

    The transport sets `wake`, which is called on the loop whenever `take_messages` has messages. The first message is
    the acknowledgement. Changes since the request was parsed follow it.
    """

    __slots__ = (
        "_ack",
        "_answer",
        "_board",
        "_call",
        "_ending",
        "_followed",
        "_lists",
        "_outcome",
        "_shares",
        "_updates",
        "wake",
        "wanted",
    )

    def __init__(self, call: Call, board: "Board", wanted: Wanted) -> None:
        self._shares = call.connection.shares
        self._call, self._board, self.wanted = _slimmed(call), board, wanted
        self.wake: Callable[[], None] | None = None
        self._answer = b""
        self._ack = b""
        self._lists: tuple[str, ...] = ()
        self._updates: dict[str, Update] | None = None
        self._ending = False
        self._outcome: Outcome | None = None
        self._followed: Followed | None = None

    def __repr__(self) -> str:
        return f"<Subscription {label(str(self.id))} of {label(self.principal.key)}>"

    @property
    def id(self) -> jsonrpc.Id:
        """Id of the stream's request."""
        return cast(jsonrpc.Request, self._call.message).id

    @property
    def principal(self) -> Principal:
        """The caller of the stream."""
        return self._call.principal

    def is_expired(self, now: float) -> bool:
        """Return True if the credential of the request has expired.

        `now_seconds` is in seconds since the epoch.
        """
        expires = self.principal.expires_at
        return expires is not None and expires <= now

    @property
    def has_begun(self) -> bool:
        """True if the request has succeeded."""
        return bool(self._answer)

    @property
    def is_over(self) -> bool:
        """True if no message will follow."""
        return self._outcome is not None

    def begin(self, answer: bytes) -> None:
        """Start the stream after its request has succeeded.

        `answer` is the response to the request, which is sent when the server ends the stream.
        """
        self._answer = jsonrpc.compact(answer)
        self._board.announce(self._call, self.wanted.uris, opened=True)

    async def settle(self) -> None:
        """Find the resources that the caller may read, and acknowledge only those."""
        found = {uri: await readable(self._call, uri) for uri in self.wanted.uris}
        permitted = {uri: primitive for uri, primitive in found.items() if primitive is not None}
        if len(permitted) < len(self.wanted.uris):
            wanted = self.wanted._replace(uris=tuple(permitted))
            self._board.replace(self, wanted)
            if self._updates is not None:
                self._updates = {uri: one for uri, one in self._updates.items() if one.under in permitted}
        if permitted and may_follow(self._call.server):
            self._followed = Followed(self._call, self._changed_elsewhere)
            await self._followed.begin(permitted)
        self._ack = self._notification(ACKNOWLEDGED, {"notifications": self.wanted.to_wire()})

    def list_changed(self, kind: str) -> None:
        """Add a change of a list. A repeated change counts once until it is sent."""
        if kind not in self._lists:
            self._lists += (kind,)
            self._awake()

    def updated(self, update: Update) -> None:
        """Add a change of a resource. A repeated change counts once until it is sent.

        Above the limit of parts, updates of parts become updates of the subscribed resources.
        """
        waiting = self._updates
        if waiting is None:
            waiting = self._updates = {}
        elif update.uri in waiting:
            return
        elif len(waiting) >= WAITING + len(self.wanted.uris):
            self._updates = waiting = {one.under: one.whole() for one in waiting.values()}
            update = update.whole()
        waiting[update.uri] = update
        self._awake()

    async def take(self) -> list[bytes] | None:
        """Return the encoded pending messages, or None after the end of the stream.

        Read permission is checked here, as late as possible.
        """
        if self._outcome is not None:
            return None

        messages: list[bytes] = []
        if self._ack:
            messages.append(self._ack)
            self._ack = b""

        lists, self._lists = self._lists, ()
        messages += [self._notification(LISTS[kind], {}) for kind in lists]
        updates, self._updates = self._updates, None
        for update in () if updates is None else updates.values():
            if update.free or await self._permits(update):
                messages.append(self._notification(RESOURCE_UPDATED, {"uri": update.uri}))
        if self.is_over:  # the stream ended during the permission checks
            return None

        if self._ending:
            messages += self._farewell()
            self._leave(Outcome.OK)
        return messages

    async def _permits(self, update: Update) -> bool:
        try:
            return await may_read(self._call, update.uri)
        except Overloaded:
            asyncio.get_running_loop().call_later(RETRY, self.updated, update, context=contextvars.Context())
            return False

    def end(self) -> None:
        """End the stream after its pending messages.

        The response to the request comes last.
        """
        self._ending = True
        self._awake()

    def cancel(self) -> None:
        """End the stream at once, because the client cancelled it or disconnected."""
        self._leave(Outcome.CANCELLED)
        self._awake()

    def abandon(self) -> None:
        """Discard the stream, because its request is answered with an error."""
        if self._outcome is None:
            self._outcome = Outcome.ERROR
            self._withdraw()

    def _leave(self, outcome: Outcome) -> None:
        if self._outcome is None:
            self._outcome, self._updates = outcome, None
            self._withdraw()
            self._board.announce(self._call, self.wanted.uris, opened=False)
            over(self._call, outcome)

    def _withdraw(self) -> None:
        self._board.remove(self)
        if self._followed is not None:
            self._followed.close()

    def _changed_elsewhere(self, uri: str) -> None:
        if not self.is_over:
            self.updated(Update(uri, uri, False))

    def _farewell(self) -> list[bytes]:
        """Encode the last messages of a graceful closure (basic/patterns/subscriptions).

        If several streams share a channel that stays open, a cancellation follows (basic/patterns/cancellation).
        """
        if not self._shares:
            return [self._answer]
        return [self._answer, jsonrpc.notification("notifications/cancelled", {"requestId": self.id})]

    def _notification(self, method: str, params: dict[str, Any]) -> bytes:
        return jsonrpc.notification(method, {"_meta": {SUBSCRIPTION_ID: self.id}, **params})

    def _awake(self) -> None:
        if self.wake is not None:
            self.wake()


class Board:
    """The subscriptions of one server on one loop, indexed by list and URI."""

    def __init__(self, server: "Server", changes: Changes) -> None:
        self._server, self._changes = server, changes
        self._all: set[Subscription] = set()
        self._lists: dict[str, set[Subscription]] = {kind: set() for kind in LISTS}
        self._uris: dict[str, set[Subscription]] = {}
        self._following: asyncio.Task[Callable[[], None]] | None = None

    async def add(self, subscription: Subscription) -> None:
        """Add a subscription. Raises Overloaded at a limit.

        Changes reach it from shortly before this returns.
        """
        self._changes.enter(subscription.principal.key)
        self._all.add(subscription)
        self._place(subscription)

        following = self._following
        if following is None:
            # A separate task, because concurrent callers wait for the same one.
            begun = asyncio.get_running_loop().create_task(
                _followed(self._changes, self.tell), context=contextvars.Context()
            )
            following = self._following = begun

        try:
            await asyncio.shield(following)
        except BaseException:
            # A listener that succeeded despite the cancellation serves other callers. The last removal stops it.
            if self._following is following and _has_failed(following):
                self._following = None
            self.remove(subscription)
            raise

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription. The last one stops the listener."""
        if subscription not in self._all:
            return
        self._all.discard(subscription)
        self._displace(subscription)
        self._changes.leave(subscription.principal.key)
        if not self._all and self._following is not None:
            self._following.add_done_callback(_stop)
            self._following = None

    def replace(self, subscription: Subscription, wanted: Wanted) -> None:
        """Replace the filter of a subscription."""
        self._displace(subscription)
        subscription.wanted = wanted
        self._place(subscription)

    def announce(self, call: Call, uris: tuple[str, ...], *, opened: bool) -> None:
        """Send the project's signal that a stream opened or closed."""
        if uris:
            self._changes.announce(call, uris, opened=opened)

    def _place(self, subscription: Subscription) -> None:
        for kind in subscription.wanted.lists:
            self._lists[kind].add(subscription)
        for uri in subscription.wanted.uris:
            self._uris.setdefault(uri, set()).add(subscription)

    def _displace(self, subscription: Subscription) -> None:
        for kind in subscription.wanted.lists:
            self._lists[kind].discard(subscription)
        for uri in subscription.wanted.uris:
            told = self._uris[uri]
            told.discard(subscription)
            if not told:
                del self._uris[uri]

    def tell(self, kind: str, payload: Any) -> None:
        """Publish a change from the change feed to the matching subscriptions."""
        if kind == "list_changed":
            for subscription in tuple(self._lists.get(payload["kind"], ())):
                if concerns(payload, subscription.principal):
                    subscription.list_changed(payload["kind"])
        elif kind == "updated" and self._uris:
            self._tell_update(payload)

    def _tell_update(self, payload: Any) -> None:
        uri: str = payload["uri"]
        told: set[Subscription] = set()
        free: bool | None = None
        for under in covering(uri):
            interested = self._uris.get(under)
            if interested:
                if free is None:
                    free = is_free(self._server, uri)
                update = Update(uri, under, free)
                for subscription in interested - told:
                    if concerns(payload, subscription.principal):
                        subscription.updated(update)
                told |= interested


class Subscriptions:
    """The open subscriptions of one server in this process."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        # One registry per loop: WSGI, and servers with a loop per thread, use several loops.
        self._boards: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Board] = weakref.WeakKeyDictionary()

    async def open(self, call: Call, wanted: Wanted) -> Subscription:
        """Open a subscription for the request `call`. Raises Overloaded at a limit.

        Changes are collected before the acknowledgement.
        """
        changes = self._server.changes
        assert changes is not None  # `listen` is not offered without it
        loop = asyncio.get_running_loop()
        board = self._boards.get(loop)
        if board is None:
            board = self._boards[loop] = Board(self._server, changes)
        subscription = Subscription(call, board, wanted)
        await board.add(subscription)
        try:
            await subscription.settle()
        except BaseException:
            subscription.abandon()
            raise
        return subscription


async def _followed(changes: Changes, tell: Callable[[str, Any], None]) -> Callable[[], None]:
    return await changes.follow(tell)


def _has_failed(following: "asyncio.Task[Callable[[], None]]") -> bool:
    return following.done() and (following.cancelled() or following.exception() is not None)


def _stop(following: "asyncio.Task[Callable[[], None]]") -> None:
    if not _has_failed(following):
        following.result()()


_UNTRACED = Fate()
_UNTRACED.trace = None
_NOTHING: dict[str, Any] = {}
_SILENT = Outbox(interactive=False)


def _slimmed(call: Call) -> Call:
    """Strip a call to the data that an open stream needs.

    It needs the caller, and the fields of the final log record.
    """
    traced = call.trace is not None
    return replace(
        call,
        message=jsonrpc.Request(cast(jsonrpc.Request, call.message).id, LISTENING, None),
        connection=Connection(call.principal, kwargs=call.connection.kwargs or None),
        outbox=_SILENT,
        capabilities=_NOTHING,
        client_info=_NOTHING,
        meta=_NOTHING,
        fate=call.fate if traced else _UNTRACED,
    )
