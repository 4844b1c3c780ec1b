"""Subscriptions across workers: changes from the event log, subscriptions as rows.

A stream of the stateless era ends with its connection, so its subscriptions are kept in memory. Subscriptions of a
session are rows, because its stream may be on another worker or be opened later. An open stream receives subscription
changes through the event log.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from django.db import IntegrityError
from django.dispatch import Signal

from mcp_django.aio.tasks import BackgroundTasks, start_task
from mcp_django.models import ResourceSubscription
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, InvalidRequest, ResourceNotFound
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.revisions import can_notify
from mcp_django.runtime.concurrency import StreamLimiter
from mcp_django.runtime.events.event_log import Event, EventDraft, EventLog, changes_topic
from mcp_django.runtime.events.follower import LogFollower, TopicSubscription
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.sessions.events import session_topic
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.capabilities import LIST_NOTIFICATIONS, NotifiedChanges
from mcp_django.server.eras.handshake import HandshakeEra
from mcp_django.server.ports import Executor, Overloaded
from mcp_django.server.server import Server
from mcp_django.server.subscriptions.filter import RESOURCE_UPDATED, can_read, covering_uris, is_public, is_relevant
from mcp_django.server.subscriptions.upstream import UpstreamSubscriptions, has_upstream
from mcp_django.signals import subscribed, unsubscribed

logger = get_logger("mcp_django.server")

PERMISSION_RETRY_SECONDS = 1.0
"""Seconds between two attempts to check a read permission on an overloaded server."""

MessageHandler = Callable[[int, bytes], None]


@dataclass(eq=False, repr=False)
class EventLogChangeFeed:
    """Implementation of `ports.ChangeFeed` on the event log, for one server alias."""

    alias: str
    _: KW_ONLY
    publisher: EventPublisher
    executor: Executor
    limiter: StreamLimiter
    max_subscriptions: int
    """Maximum number of resources that a session may subscribe to."""
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks, init=False)

    def acquire_stream(self, owner: str) -> None:
        self.limiter.acquire(owner)

    def release_stream(self, owner: str) -> None:
        self.limiter.release(owner)

    async def add_listener(self, callback: Callable[[str, Any], None]) -> Callable[[], None]:
        def on_event(event: Event) -> None:
            callback(event.kind, event.payload)

        return (await self.publisher.get_follower().subscribe(changes_topic(self.alias), on_event)).stop

    async def subscribe(self, call: Call, uri: str) -> None:
        session = _require_session(call)
        if "\0" in uri:
            raise ResourceNotFound(uri)  # Databases cannot store NUL, and templates never match it.
        since = await self.executor.run(self._insert, session.pk, uri)
        if since is not None:
            # Publish after the row is written: a stream opened in between has read the row.
            await self.publisher.publish(
                EventDraft(session_topic(session.pk), "subscribed", {"uri": uri, "since": since})
            )
            self.send_stream_signal(call, [uri], opened=True)

    async def unsubscribe(self, call: Call, uri: str) -> None:
        session = _require_session(call)
        if await self.executor.run(ResourceSubscription.objects.remove, session.pk, uri):
            await self.publisher.publish(EventDraft(session_topic(session.pk), "unsubscribed", {"uri": uri}))
            self.send_stream_signal(call, [uri], opened=False)

    def send_stream_signal(self, call: Call, uris: Sequence[str], *, opened: bool) -> None:
        signal = subscribed if opened else unsubscribed
        if not signal.receivers or not uris:
            return
        arguments = {"server": self.alias, "owner": call.principal.key, "session": call.session and call.session.pk}
        # In a clean context and on a separate thread: the call, or its connection, may have ended.
        self._tasks.spawn(self._send_signals(signal, uris, arguments))

    async def _send_signals(self, signal: Signal, uris: Sequence[str], arguments: dict[str, Any]) -> None:
        with self.executor.context(unbounded=True):
            try:
                for uri in uris:
                    await signal.asend_robust(sender=None, uri=uri, **arguments)
            except Exception:
                logger.exception("Subscription signal could not be sent to all receivers")

    def _insert(self, session: int, uri: str) -> int | None:
        """Insert the row; return the last event's number, or None if the row existed."""
        since = EventLog().head()
        try:
            if not ResourceSubscription.objects.add(session, uri, since=since, limit=self.max_subscriptions):
                return None
        except IntegrityError:
            raise InvalidRequest("This session has ended") from None
        except OverflowError:
            message = (
                f"This session has reached its limit of {self.max_subscriptions} subscriptions; "
                "unsubscribe from a resource first"
            )
            raise InvalidParams(message) from None
        return since


def _require_session(call: Call) -> ServerSession:
    if call.session is None:
        raise InvalidRequest("The session is not initialized; send initialize first")
    return call.session


@dataclass(eq=False, repr=False)
class SessionEventSource:
    """Event log filtered for one session.

    Events are not copied per session. A session can therefore read missed events as long as the log has them. They are
    the messages of its own topic, updates of subscribed resources, and list changes that its revision supports.
    """

    server: Server
    _: KW_ONLY
    publisher: EventPublisher
    executor: Executor

    def __post_init__(self) -> None:
        self._era = HandshakeEra(self.server)

    async def open(
        self, session: ServerSession, after: int, handler: MessageHandler, *, connection: Connection
    ) -> "SessionEventStream":
        """Open a stream of the session's events from number `after` + 1 on.

        `handler` is called on the running loop, in order, with the number and the encoded JSON-RPC message of each
        event. It must neither block nor raise. On return, all past events have been passed to `handler` and no future
        event is missed.

        Updates of resources require the permission of the principal of `connection`. The stream starts with the lists
        that changed since the session received them, because a new release appends no event.

        Raises:
            django.db.Error: the event log cannot be read.
        """
        notification = jsonrpc.Notification(RESOURCE_UPDATED, None)
        call = self._era.create_call(notification, connection, Outbox(interactive=False))
        stream = SessionEventStream(call, handler)
        follower = self.publisher.get_follower()

        try:
            await stream.subscribe(follower, session_topic(session.pk), after)
            await stream.subscribe(follower, changes_topic(self.server.alias), after)
            subscribed_uris = await run_on_own_thread(
                self.executor, ResourceSubscription.objects.get_start_events, session.pk
            )
            stale_lists = await self.server.listings.find_stale(call)
        except BaseException:
            stream.stop()
            raise
        stream.start(subscribed_uris, stale_lists, after)
        return stream


@dataclass(slots=True, eq=False, repr=False)
class SessionEventStream:
    """Open event stream of a session, until `stop`."""

    _call: Call
    _handler: MessageHandler
    _allowed_notifications: NotifiedChanges = field(init=False)

    _topic_subscriptions: list[TopicSubscription] = field(default_factory=list)
    _subscribed_uris: dict[str, int] = field(default_factory=dict)
    """Resource URI → number of the event after which updates are sent."""

    _buffered: list[Event] | None = field(default_factory=list)
    """Events received before both topics are subscribed; None afterwards."""
    _queue: deque[Event] = field(default_factory=deque)
    """Events queued behind one that needs a permission check."""
    _queue_task: asyncio.Task[None] | None = None

    _upstream: UpstreamSubscriptions | None = None
    """Subscriptions to resources of other servers, whose changes are not in the log."""
    _upstream_changes: dict[str, None] = field(default_factory=dict)
    """URIs of changed upstream resources whose notifications are pending."""
    _upstream_task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._allowed_notifications = self._call.server.get_notified_changes(self._call.revision)
        if has_upstream(self._call.server):
            self._upstream = UpstreamSubscriptions(self._call, self._on_upstream_change)

    @property
    def position(self) -> int:
        """Number up to which all events of the session have been passed to the handler."""
        if self._buffered or self._queue:
            return (self._buffered or self._queue)[0].seq - 1
        return min(subscription.position for subscription in self._topic_subscriptions)

    def stop(self) -> None:
        """Stop calling the handler. Idempotent."""
        for subscription in self._topic_subscriptions:
            subscription.stop()
        self._buffered = []
        self._queue.clear()
        for task in (self._queue_task, self._upstream_task):
            if task is not None:
                task.cancel()
        if self._upstream is not None:
            self._upstream.close()

    async def subscribe(self, follower: LogFollower, topic: str, after: int) -> None:
        """Subscribe to a topic."""
        self._topic_subscriptions.append(await follower.subscribe(topic, self._on_event, after=after))

    def start(self, subscribed_uris: Mapping[str, int], stale_lists: Iterable[str], after: int) -> None:
        """Start delivery after all topics are subscribed.

        `subscribed_uris` maps URIs to the event after which their updates are sent. `stale_lists` are kinds of lists
        that changed. The changes of some of them are among the buffered events.
        """
        self._subscribed_uris.update(subscribed_uris)
        logged_lists = {
            event.payload["kind"]
            for event in self._buffered or ()
            if event.kind == "list_changed" and is_relevant(event.payload, self._call.principal)
        }
        for kind in stale_lists:
            if kind in self._allowed_notifications.lists and kind not in logged_lists:
                self._send_notification(after, LIST_NOTIFICATIONS[kind], None)

        buffered = self._buffered or []
        self._buffered = None
        if self._upstream is not None:
            for uri in subscribed_uris:
                self._upstream.add(uri, may_have_changed=True)
        for event in sorted(buffered):
            self._on_event(event)

    def _on_event(self, event: Event) -> None:
        if self._buffered is not None:
            self._buffered.append(event)
        elif self._queue or not self._deliver(event):
            self._queue.append(event)
            if self._queue_task is None:
                self._queue_task = start_task(self._process_queue())

    def _deliver(self, event: Event) -> bool:
        """Deliver an event if it concerns the session.

        Return False if permission must be checked first.
        """
        seq, payload = event.seq, event.payload
        match event.kind:
            case "message":
                self._handler(seq, jsonrpc.dumps(payload))
            case "updated":
                return self._deliver_update(seq, payload)
            case "list_changed":
                if payload["kind"] in self._allowed_notifications.lists and is_relevant(payload, self._call.principal):
                    self._send_notification(seq, LIST_NOTIFICATIONS[payload["kind"]], None)
            case "broadcast":
                if can_notify(self._call.revision, payload["method"]):
                    self._send_notification(seq, payload["method"], payload.get("params"))
            case "subscribed" | "unsubscribed":
                self._update_subscription(payload["uri"], payload.get("since"))
        return True

    def _deliver_update(self, seq: int, payload: dict[str, Any]) -> bool:
        uri = payload["uri"]
        is_subscribed = self._allowed_notifications.includes_resources and any(
            seq > self._subscribed_uris.get(covering_uri, seq) for covering_uri in covering_uris(uri)
        )
        if not is_subscribed or not is_relevant(payload, self._call.principal):
            return True
        if not is_public(self._call.server, uri):
            return False
        self._send_notification(seq, RESOURCE_UPDATED, {"uri": uri})
        return True

    def _update_subscription(self, uri: str, since: int | None) -> None:
        """Add a subscription after event `since`, or remove it with None."""
        if since is None:
            self._subscribed_uris.pop(uri, None)
        else:
            self._subscribed_uris[uri] = since

        if self._upstream is not None and since is None:
            self._upstream.remove(uri)
        elif self._upstream is not None:
            self._upstream.add(uri)

    def _send_notification(self, seq: int, method: str, params: dict[str, Any] | None) -> None:
        self._handler(seq, jsonrpc.notification(method, params))

    async def _process_queue(self) -> None:
        try:
            while self._queue:
                event = self._queue[0]
                if not self._deliver(event) and await self._can_read(event.payload["uri"]) and self._queue:
                    self._send_notification(event.seq, RESOURCE_UPDATED, {"uri": event.payload["uri"]})
                if self._queue:
                    self._queue.popleft()
        finally:
            self._queue_task = None

    def _on_upstream_change(self, uri: str) -> None:
        if self._allowed_notifications.includes_resources:
            self._upstream_changes[uri] = None
            if self._upstream_task is None:
                self._upstream_task = start_task(self._send_upstream_changes())

    async def _send_upstream_changes(self) -> None:
        """Send notifications of upstream changes under the last delivered event's number.

        These changes are not in the log. A client that resumes is notified again.
        """
        try:
            while self._upstream_changes:
                uri = next(iter(self._upstream_changes))
                del self._upstream_changes[uri]
                if await self._can_read(uri) and uri in self._subscribed_uris:
                    self._send_notification(self.position, RESOURCE_UPDATED, {"uri": uri})
        finally:
            self._upstream_task = None

    async def _can_read(self, uri: str) -> bool:
        while True:
            try:
                return await can_read(self._call, uri)
            except Overloaded:
                await asyncio.sleep(PERMISSION_RETRY_SECONDS)
