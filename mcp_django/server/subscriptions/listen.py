"""`subscriptions/listen`: streams of change notifications in the stateless era.

A `Subscription` is a plain object without a task. Changes mark it, and its transport takes the notifications when it
can send. A slow client therefore costs at most one mark per changed item, and an idle client costs one object. The
`SubscriptionRegistry` of a server and a loop matches changes to subscriptions, and listens to changes once for all.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import start_task, start_timer
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.meta import SUBSCRIPTION_ID
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.log_sanitizer import sanitize_label
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.capabilities import LIST_NOTIFICATIONS
from mcp_django.server.ports import ChangeFeed, Outcome, Overloaded, Principal
from mcp_django.server.subscriptions.filter import (
    ACKNOWLEDGED,
    RESOURCE_UPDATED,
    ExtensionKey,
    ResourceUpdate,
    SubscriptionFilter,
    can_read,
    covering_uris,
    find_readable,
    is_public,
    is_relevant,
    read_extension_key,
)
from mcp_django.server.subscriptions.upstream import UpstreamSubscriptions, has_upstream

if TYPE_CHECKING:
    from mcp_django.server.server import Server

T = TypeVar("T")
LISTEN_METHOD = "subscriptions/listen"
MAX_PENDING_PARTS = 64
"""Maximum number of pending updates of parts, on top of the subscribed resources."""

MAX_CLIENT_CHARACTERS = 120
"""Maximum characters of the name and of the version of a client that an open stream keeps."""

RETRY_DELAY_SECONDS = 1.0
"""Seconds before an overloaded permission check is retried."""


@dataclass(slots=True, eq=False, repr=False)
class Subscription:
    """A stream of changes, from its request to its end.

    The transport sets `wake`, which is called on the loop whenever `take_messages` has messages. The first message is
    the acknowledgement. Changes since the request was parsed follow it.
    """

    _call: Call
    """Call of the request, stripped to the data that an open stream needs."""
    _registry: "SubscriptionRegistry"
    filter: SubscriptionFilter
    _shares: bool
    """True if the stream shares a bidirectional connection."""

    wake: Callable[[], None] | None = field(default=None, init=False)
    _conclude: Callable[[Call, Outcome], None] | None = field(default=None, init=False)
    """Function that records the end of the call; None until the request has succeeded."""
    _answer: bytes = field(default=b"", init=False)
    _ack: bytes = field(default=b"", init=False)
    _lists: tuple[str, ...] = field(default=(), init=False)
    _updates: dict[str, ResourceUpdate] | None = field(default=None, init=False)
    _keys: tuple[ExtensionKey, ...] = field(default=(), init=False)
    _is_closing: bool = field(default=False, init=False)
    _outcome: Outcome | None = field(default=None, init=False)
    _upstream: UpstreamSubscriptions | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<Subscription {sanitize_label(str(self.id))} of {sanitize_label(self.principal.key)}>"

    @property
    def id(self) -> jsonrpc.Id:
        """Id of the stream's request."""
        return cast(jsonrpc.Request, self._call.message).id

    @property
    def call(self) -> Call:
        """Call of the request, with its caller, its start, and name and version of the client."""
        return self._call

    @property
    def principal(self) -> Principal:
        """The caller of the stream."""
        return self._call.principal

    def is_expired(self, now_seconds: float) -> bool:
        """Return True if the credential of the request has expired.

        `now_seconds` is in seconds since the epoch.
        """
        expires = self.principal.expires_at
        return expires is not None and expires <= now_seconds

    @property
    def has_started(self) -> bool:
        """True if the request has succeeded."""
        return bool(self._answer)

    @property
    def is_closed(self) -> bool:
        """True if no message will follow."""
        return self._outcome is not None

    def start(self, answer: bytes, conclude: Callable[[Call, Outcome], None]) -> None:
        """Start the stream after its request has succeeded.

        `answer` is the response to the request, which is sent when the server ends the stream. `conclude` is called
        once at the end of the stream, which is the end of its call.
        """
        self._answer = jsonrpc.compact(answer)
        self._conclude = conclude
        self._registry.send_stream_signal(self._call, self.filter.uris, opened=True)

    async def acknowledge(self) -> None:
        """Find the resources and keys that the caller may read, and acknowledge only those."""
        resources = {uri: await find_readable(self._call, uri) for uri in self.filter.uris}
        permitted = {uri: primitive for uri, primitive in resources.items() if primitive is not None}
        keys = [key for key in self.filter.keys if await read_extension_key(self._call, key) is not None]
        if len(permitted) < len(self.filter.uris) or len(keys) < len(self.filter.keys):
            wanted = self.filter._replace(uris=tuple(permitted), keys=tuple(keys))
            self._registry.replace_filter(self, wanted)
            self._keys = tuple(key for key in self._keys if key in keys)
            if self._updates is not None:
                self._updates = {uri: one for uri, one in self._updates.items() if one.subscribed_uri in permitted}
        if permitted and has_upstream(self._call.server):
            self._upstream = UpstreamSubscriptions(self._call, self._add_upstream_change)
            await self._upstream.start(permitted)
        self._ack = self._notification(ACKNOWLEDGED, {"notifications": self.filter.to_wire()})

    def add_list_change(self, kind: str) -> None:
        """Add a change of a list. A repeated change counts once until it is sent."""
        if kind not in self._lists:
            self._lists += (kind,)
            self._wake_transport()

    def add_key(self, key: ExtensionKey) -> None:
        """Add a change of a key of an extension. A repeated change counts once until it is sent."""
        if key not in self._keys:
            self._keys += (key,)
            self._wake_transport()

    def add_update(self, update: ResourceUpdate) -> None:
        """Add a change of a resource. A repeated change counts once until it is sent.

        Above the limit of parts, updates of parts become updates of the subscribed resources.
        """
        pending = self._updates
        if pending is None:
            pending = self._updates = {}
        elif update.uri in pending:
            return
        elif len(pending) >= MAX_PENDING_PARTS + len(self.filter.uris):
            self._updates = pending = {one.subscribed_uri: one.to_subscribed() for one in pending.values()}
            update = update.to_subscribed()
        pending[update.uri] = update
        self._wake_transport()

    async def take_messages(self) -> list[bytes] | None:
        """Return the encoded pending messages, or None after the end of the stream.

        Read permission is checked here, as late as possible.
        """
        if self._outcome is not None:
            return None

        messages: list[bytes] = []
        if self._ack:
            messages.append(self._ack)
            self._ack = b""

        lists = self._lists
        self._lists = ()
        messages += [self._notification(LIST_NOTIFICATIONS[kind], {}) for kind in lists]
        updates = self._updates
        self._updates = None
        for update in () if updates is None else updates.values():
            if update.is_public or await self._can_read(update):
                messages.append(self._notification(RESOURCE_UPDATED, {"uri": update.uri}))
        messages += await self._take_key_messages()
        if self.is_closed:  # the stream ended during the permission checks
            return None

        if self._is_closing:
            messages += self._encode_final_messages()
            self._finish(Outcome.OK)
        return messages

    async def _take_key_messages(self) -> list[bytes]:
        keys = self._keys
        self._keys = ()
        subscriptions = self._call.server.extensions.subscriptions
        messages: list[bytes] = []
        for key in keys:
            try:
                params = await read_extension_key(self._call, key)
            except Overloaded:
                start_timer(RETRY_DELAY_SECONDS, self.add_key, key)
                continue
            if params is not None:
                messages.append(self._notification(subscriptions[key.field].notification, params))
        return messages

    async def _can_read(self, update: ResourceUpdate) -> bool:
        try:
            return await can_read(self._call, update.uri)
        except Overloaded:
            start_timer(RETRY_DELAY_SECONDS, self.add_update, update)
            return False

    def close(self) -> None:
        """End the stream after its pending messages.

        The response to the request comes last.
        """
        self._is_closing = True
        self._wake_transport()

    def cancel(self) -> None:
        """End the stream at once, because the client cancelled it or disconnected."""
        self._finish(Outcome.CANCELLED)
        self._wake_transport()

    def abandon(self) -> None:
        """Discard the stream, because its request is answered with an error."""
        if self._outcome is None:
            self._outcome = Outcome.ERROR
            self._unregister()

    def _finish(self, outcome: Outcome) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._updates = None
            self._unregister()
            self._registry.send_stream_signal(self._call, self.filter.uris, opened=False)
            if self._conclude is not None:
                self._conclude(self._call, outcome)

    def _unregister(self) -> None:
        self._registry.remove(self)
        if self._upstream is not None:
            self._upstream.close()

    def _add_upstream_change(self, uri: str) -> None:
        if not self.is_closed:
            self.add_update(ResourceUpdate(uri, uri, False))

    def _encode_final_messages(self) -> list[bytes]:
        """Encode the last messages of a graceful closure (basic/patterns/subscriptions).

        If several streams share a channel that stays open, a cancellation follows (basic/patterns/cancellation).
        """
        if not self._shares:
            return [self._answer]
        return [self._answer, jsonrpc.notification("notifications/cancelled", {"requestId": self.id})]

    def _notification(self, method: str, params: JSONObject) -> bytes:
        return jsonrpc.notification(method, {"_meta": {SUBSCRIPTION_ID: self.id}, **params})

    def _wake_transport(self) -> None:
        if self.wake is not None:
            self.wake()


class SubscriptionRegistry:
    """The subscriptions of one server on one loop, indexed by list and URI."""

    def __init__(self, server: "Server", changes: ChangeFeed) -> None:
        self._server = server
        self._changes = changes
        self._all: set[Subscription] = set()
        self._lists: dict[str, set[Subscription]] = {kind: set() for kind in LIST_NOTIFICATIONS}
        self._uris: dict[str, set[Subscription]] = {}
        self._keys: dict[ExtensionKey, set[Subscription]] = {}
        self._listener: asyncio.Task[Callable[[], None]] | None = None

    async def add(self, subscription: Subscription) -> None:
        """Add a subscription. Raises Overloaded at a limit.

        Changes reach it from shortly before this returns.
        """
        self._changes.acquire_stream(subscription.principal.key)
        self._all.add(subscription)
        self._index(subscription)

        listener = self._listener
        if listener is None:
            # A separate task, because concurrent callers wait for the same one.
            listener = self._listener = start_task(self._changes.add_listener(self.publish))

        try:
            await asyncio.shield(listener)
        except BaseException:
            # A listener that succeeded despite the cancellation serves other callers. The last removal stops it.
            if self._listener is listener and _has_failed(listener):
                self._listener = None
            self.remove(subscription)
            raise

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription. The last one stops the listener."""
        if subscription not in self._all:
            return
        self._all.discard(subscription)
        self._unindex(subscription)
        self._changes.release_stream(subscription.principal.key)
        if not self._all and self._listener is not None:
            self._listener.add_done_callback(_remove_listener)
            self._listener = None

    def replace_filter(self, subscription: Subscription, filter: SubscriptionFilter) -> None:
        """Replace the filter of a subscription, and its entries in the index."""
        self._unindex(subscription)
        subscription.filter = filter
        self._index(subscription)

    def list_started(self) -> list[Subscription]:
        """Return the started subscriptions. Thread-safe."""
        return [subscription for subscription in list(self._all) if subscription.has_started]

    def send_stream_signal(self, call: Call, uris: tuple[str, ...], *, opened: bool) -> None:
        """Send the project's signal that a stream opened or closed."""
        if uris:
            self._changes.send_stream_signal(call, uris, opened=opened)

    def _index(self, subscription: Subscription) -> None:
        for kind in subscription.filter.lists:
            self._lists[kind].add(subscription)
        for uri in subscription.filter.uris:
            self._uris.setdefault(uri, set()).add(subscription)
        for key in subscription.filter.keys:
            self._keys.setdefault(key, set()).add(subscription)

    def _unindex(self, subscription: Subscription) -> None:
        for kind in subscription.filter.lists:
            self._lists[kind].discard(subscription)
        for uri in subscription.filter.uris:
            _discard(self._uris, uri, subscription)
        for key in subscription.filter.keys:
            _discard(self._keys, key, subscription)

    def publish(self, kind: str, payload: Any) -> None:
        """Publish a change from the change feed to the matching subscriptions."""
        if kind == "list_changed":
            for subscription in tuple(self._lists.get(payload["kind"], ())):
                if is_relevant(payload, subscription.principal):
                    subscription.add_list_change(payload["kind"])
        elif kind == "updated" and self._uris:
            self._publish_update(payload)
        elif kind == "extension":
            key = ExtensionKey(payload["field"], payload["key"])
            for subscription in tuple(self._keys.get(key, ())):
                subscription.add_key(key)

    def _publish_update(self, payload: Any) -> None:
        uri: str = payload["uri"]
        notified: set[Subscription] = set()
        public: bool | None = None
        for subscribed_uri in covering_uris(uri):
            interested = self._uris.get(subscribed_uri)
            if interested:
                if public is None:
                    public = is_public(self._server, uri)
                update = ResourceUpdate(uri, subscribed_uri, public)
                for subscription in interested - notified:
                    if is_relevant(payload, subscription.principal):
                        subscription.add_update(update)
                notified |= interested


class ServerSubscriptions:
    """The open subscriptions of one server in this process."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        # One registry per loop: WSGI, and servers with a loop per thread, use several loops.
        self._registries = LoopLocal(self._create_registry)

    async def open(self, call: Call, filter: SubscriptionFilter) -> Subscription:
        """Open a subscription for the request `call`. Raises Overloaded at a limit.

        Changes are collected before the acknowledgement.
        """
        registry = self._registries.get()
        subscription = Subscription(_strip_call(call), registry, filter, call.connection.is_bidirectional)
        await registry.add(subscription)
        try:
            await subscription.acknowledge()
        except BaseException:
            subscription.abandon()
            raise
        return subscription

    def list_started(self) -> list[tuple[asyncio.AbstractEventLoop, Subscription]]:
        """Return the started subscriptions with their loops. Thread-safe."""
        return [
            (loop, subscription)
            for loop, registry in self._registries.items()
            for subscription in registry.list_started()
        ]

    def _create_registry(self) -> SubscriptionRegistry:
        changes = self._server.ports.change_feed
        assert changes is not None  # `listen` is not offered without it
        return SubscriptionRegistry(self._server, changes)


def _discard(index: dict[T, set[Subscription]], key: T, subscription: Subscription) -> None:
    subscribers = index[key]
    subscribers.discard(subscription)
    if not subscribers:
        del index[key]


def _has_failed(listener: "asyncio.Task[Callable[[], None]]") -> bool:
    return listener.done() and (listener.cancelled() or listener.exception() is not None)


def _remove_listener(listener: "asyncio.Task[Callable[[], None]]") -> None:
    if not _has_failed(listener):
        listener.result()()


_EMPTY: JSONObject = {}
_NULL_OUTBOX = Outbox(interactive=False)


def _strip_call(call: Call) -> Call:
    """Strip a call to the data that an open stream needs.

    It needs the caller, and the fields of the final log record.
    """
    _ = call.trace  # The record keeps it, and the metadata that it is read from is dropped.
    return replace(
        call,
        message=jsonrpc.Request(cast(jsonrpc.Request, call.message).id, LISTEN_METHOD, None),
        connection=Connection(call.principal, url_kwargs=call.connection.url_kwargs or None),
        outbox=_NULL_OUTBOX,
        capabilities=_EMPTY,
        client_info=_shorten_client_info(call),
        meta=_EMPTY,
    )


def _shorten_client_info(call: Call) -> JSONObject:
    """Return the name and version of the client, in a dict that streams of equal clients share."""
    info = call.client_info
    name, version = (text if isinstance(text := info.get(key), str) else "" for key in ("name", "version"))
    return _build_client_info(name[:MAX_CLIENT_CHARACTERS], version[:MAX_CLIENT_CHARACTERS])


@lru_cache(maxsize=256)
def _build_client_info(name: str, version: str) -> JSONObject:
    return {"name": name, "version": version}
