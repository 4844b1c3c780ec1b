"""Subscriptions across workers: changes from the event log, subscriptions as rows.

A stream of the stateless era ends with its connection, so its subscriptions are kept in memory. Subscriptions of a
session are rows, because its stream may be on another worker or be opened later. An open stream receives subscription
changes through the event log.
"""

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.db import IntegrityError
from django.dispatch import Signal

from mcp_django.models import ResourceSubscription
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, InvalidRequest, ResourceNotFound
from mcp_django.protocol.revisions import may_notify
from mcp_django.runtime.events.event_log import Draft, Event, EventLog
from mcp_django.runtime.events.follower import Feed, Following, run_apart
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.sessions.store import LOCAL_OWNER
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import Session
from mcp_django.server.eras.handshake import HandshakeEra
from mcp_django.server.ports import Executor, Overloaded
from mcp_django.server.server import Server
from mcp_django.server.subscriptions.filter import LISTS, RESOURCE_UPDATED, concerns, covering, is_free, may_read
from mcp_django.server.subscriptions.upstream import Followed, may_follow
from mcp_django.signals import subscribed, unsubscribed

logger = logging.getLogger("mcp_django.server")

RETRY_AFTER = 10.0
"""Seconds after which a client should retry when the stream limit is reached."""
BUSY = 1.0
"""Seconds between two attempts to check a read permission on an overloaded server."""

Sink = Callable[[int, bytes], None]


class Listens:
    """Limit on long-lived streams in this process, in total and per owner.

    The local principal may represent many clients, so only the total limit applies to it.
    """

    def __init__(self, most: int, each: int) -> None:
        self._most, self._each = most, each
        self._counts: dict[str, int] = {}
        self._all = 0
        # Locked, because servers may run a loop in each of their threads.
        self._lock = threading.Lock()

    def enter(self, owner: str) -> None:
        """Count another open stream.

        Raises:
            Overloaded: a limit is reached.
        """
        with self._lock:
            count = self._counts.get(owner, 0)
            if count >= self._each and owner != LOCAL_OWNER:
                text = f"{self._each} streams of yours are open already; close one first"
                raise Overloaded(text, status=429, retry_after=RETRY_AFTER)

            if self._all >= self._most:
                raise Overloaded("Too many streams are open; try again later", retry_after=RETRY_AFTER)
            self._counts[owner] = count + 1
            self._all += 1

    def leave(self, owner: str) -> None:
        """Uncount a stream that was counted by `acquire`."""
        with self._lock:
            self._all -= 1
            left = self._counts[owner] - 1
            if left:
                self._counts[owner] = left
            else:
                del self._counts[owner]

    def __len__(self) -> int:
        return self._all


class LoggedChanges:
    """Implementation of `ports.ChangeFeed` on the event log, for one server alias."""

    def __init__(self, alias: str, *, feeds: Feeds, executor: Executor, listens: Listens, most: int) -> None:
        """Create the feed; a session may subscribe to `max_subscriptions` resources."""
        self._alias, self._feeds, self._executor, self._most = alias, feeds, executor, most
        self.enter, self.leave = listens.enter, listens.leave
        self._tasks: set[asyncio.Task[None]] = set()

    async def follow(self, tell: Callable[[str, Any], None]) -> Callable[[], None]:
        def pass_on(event: Event) -> None:
            tell(event.kind, event.payload)

        return (await self._feeds.here().follow(changes_topic(self._alias), pass_on)).stop

    async def subscribe(self, call: Call, uri: str) -> None:
        session = _session(call)
        if "\0" in uri:
            raise ResourceNotFound(uri)  # Databases cannot store NUL, and templates never match it.
        since = await self._executor.run(self._insert, session.pk, uri)
        if since is not None:
            # Publish after the row is written: a stream opened in between has read the row.
            await self._feeds.publish(Draft(session_topic(session), "subscribed", {"uri": uri, "since": since}))
            self.announce(call, [uri], opened=True)

    async def unsubscribe(self, call: Call, uri: str) -> None:
        session = _session(call)
        if await self._executor.run(ResourceSubscription.objects.drop, session.pk, uri):
            await self._feeds.publish(Draft(session_topic(session), "unsubscribed", {"uri": uri}))
            self.announce(call, [uri], opened=False)

    def announce(self, call: Call, uris: Sequence[str], *, opened: bool) -> None:
        signal = subscribed if opened else unsubscribed
        if not signal.receivers or not uris:
            return
        told = {"server": self._alias, "owner": call.principal.key, "session": call.session and call.session.pk}
        # In a clean context and on a separate thread: the call, or its connection, may have ended.
        sending = self._send(signal, uris, told)
        task = asyncio.get_running_loop().create_task(sending, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, signal: Signal, uris: Sequence[str], told: dict[str, Any]) -> None:
        lease = self._executor.enter(patient=True)
        try:
            for uri in uris:
                await signal.asend_robust(sender=None, uri=uri, **told)
        except Exception:
            logger.exception("Subscription signal could not be sent to all receivers")
        finally:
            lease.close()

    def _insert(self, session: int, uri: str) -> int | None:
        """Insert the row; return the last event's number, or None if the row existed."""
        since = EventLog().head()
        try:
            if not ResourceSubscription.objects.add(session, uri, since=since, most=self._most):
                return None
        except IntegrityError:
            raise InvalidRequest("This session has ended") from None
        except OverflowError:
            text = (
                f"This session has reached its limit of {self._most} subscriptions; unsubscribe from a resource first"
            )
            raise InvalidParams(text) from None
        return since


def changes_topic(alias: str) -> str:
    """Return the topic of changes on a server."""
    return f"changes:{alias}"


def session_topic(session: Session) -> str:
    """Return the topic of events for one session."""
    return f"session:{session.pk}"


def _session(call: Call) -> Session:
    if call.session is None:
        raise InvalidRequest("The session is not initialized; send initialize first")
    return call.session


class SessionView:
    """Event log filtered for one session.

    Events are not copied per session. A session can therefore read missed events as long as the log has them. They are
    the messages of its own topic, updates of subscribed resources, and list changes that its revision supports.
    """

    def __init__(self, server: Server, *, feeds: Feeds, executor: Executor) -> None:
        self._server, self._feeds, self._executor = server, feeds, executor
        self._era = HandshakeEra(server)

    async def open(self, session: Session, after: int, sink: Sink, *, connection: Connection, fresh: bool) -> "View":
        """Open a stream of the session's events from number `after` + 1 on.

        `handler` is called on the running loop, in order, with the number and the encoded JSON-RPC message of each
        event. It must neither block nor raise. On return, all past events have been passed to `handler` and no future
        event is missed.

        Updates of resources require the permission of the principal of `connection`. With `is_new`, the stream
        continues no other one. It then starts with the lists that changed since the session received them.

        Raises:
            django.db.Error: the event log cannot be read.
        """
        message = jsonrpc.Notification(RESOURCE_UPDATED, None)
        call = self._era.open(message, connection, Outbox(interactive=False))
        view = View(call, sink)
        feed = self._feeds.here()

        try:
            await view.follow(feed, session_topic(session), after)
            await view.follow(feed, changes_topic(self._server.alias), after)
            wanted = await run_apart(self._executor, ResourceSubscription.objects.of, session.pk)
            stale = await self._server.listings.stale(call) if fresh else ()
        except BaseException:
            view.stop()
            raise
        view.go_live(wanted, stale, after)
        return view


class View:
    """Open event stream of a session, until `stop`."""

    __slots__ = (
        "_call",
        "_early",
        "_elsewhere",
        "_followed",
        "_following",
        "_notified",
        "_queue",
        "_sink",
        "_subscribed",
        "_task",
        "_telling",
    )

    def __init__(self, call: Call, sink: Sink) -> None:
        self._call, self._sink = call, sink
        self._notified = call.server.notified(call.revision)

        self._following: list[Following] = []
        self._subscribed: dict[str, int] = {}
        """Resource URI → number of the event after which updates are sent."""

        self._early: list[Event] | None = []
        """Events received before both topics are subscribed; None afterwards."""
        self._queue: deque[Event] = deque()
        """Events queued behind one that needs a permission check."""
        self._task: asyncio.Task[None] | None = None

        self._followed = Followed(call, self._changed_elsewhere) if may_follow(call.server) else None
        """Subscriptions to resources of other servers, whose changes are not in the log."""
        self._elsewhere: dict[str, None] = {}
        """URIs of changed upstream resources whose notifications are pending."""
        self._telling: asyncio.Task[None] | None = None

    @property
    def position(self) -> int:
        """Number up to which all events of the session have been passed to the handler."""
        if self._early or self._queue:
            return (self._early or self._queue)[0].seq - 1
        return min(following.position for following in self._following)

    def stop(self) -> None:
        """Stop calling the handler. Idempotent."""
        for following in self._following:
            following.stop()
        self._early = []
        self._queue.clear()
        for task in (self._task, self._telling):
            if task is not None:
                task.cancel()
        if self._followed is not None:
            self._followed.close()

    async def follow(self, feed: Feed, topic: str, after: int) -> None:
        """Subscribe to a topic."""
        self._following.append(await feed.follow(topic, self._hear, after=after))

    def go_live(self, subscribed: Mapping[str, int], stale: Iterable[str], after: int) -> None:
        """Start delivery after all topics are subscribed.

        `subscribed_uris` maps URIs to the event after which their updates are sent. `stale_lists` are kinds of lists
        that changed before event `after`.
        """
        self._subscribed.update(subscribed)
        for kind in stale:
            if kind in self._notified.lists:
                self._say(after, LISTS[kind], None)

        early, self._early = self._early or [], None
        if self._followed is not None:
            for uri in subscribed:
                self._followed.add(uri, late=True)
        for event in sorted(early):
            self._hear(event)

    def _hear(self, event: Event) -> None:
        if self._early is not None:
            self._early.append(event)
        elif self._queue or not self._pass(event):
            self._queue.append(event)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._work_off(), context=contextvars.Context())

    def _pass(self, event: Event) -> bool:
        """Deliver an event if it concerns the session.

        Return False if permission must be checked first.
        """
        match event.kind:
            case "message":
                self._sink(event.seq, jsonrpc.dumps(event.payload))
            case "updated":
                uri = event.payload["uri"]
                if self._wants(event.seq, uri) and concerns(event.payload, self._call.principal):
                    if not is_free(self._call.server, uri):
                        return False
                    self._say(event.seq, RESOURCE_UPDATED, {"uri": uri})
            case "list_changed":
                if event.payload["kind"] in self._notified.lists and concerns(event.payload, self._call.principal):
                    self._say(event.seq, LISTS[event.payload["kind"]], None)
            case "broadcast":
                if may_notify(self._call.revision, event.payload["method"]):
                    self._say(event.seq, event.payload["method"], event.payload.get("params"))
            case "subscribed":
                self._subscribed[event.payload["uri"]] = event.payload["since"]
                if self._followed is not None:
                    self._followed.add(event.payload["uri"])
            case "unsubscribed":
                self._subscribed.pop(event.payload["uri"], None)
                if self._followed is not None:
                    self._followed.drop(event.payload["uri"])
        return True

    def _wants(self, seq: int, uri: str) -> bool:
        return self._notified.resources and any(seq > self._subscribed.get(under, seq) for under in covering(uri))

    def _say(self, seq: int, method: str, params: dict[str, Any] | None) -> None:
        self._sink(seq, jsonrpc.notification(method, params))

    async def _work_off(self) -> None:
        try:
            while self._queue:
                event = self._queue[0]
                if not self._pass(event) and await self._may_read(event.payload["uri"]) and self._queue:
                    self._say(event.seq, RESOURCE_UPDATED, {"uri": event.payload["uri"]})
                if self._queue:
                    self._queue.popleft()
        finally:
            self._task = None

    def _changed_elsewhere(self, uri: str) -> None:
        if self._notified.resources:
            self._elsewhere[uri] = None
            if self._telling is None:
                work = self._tell_of_elsewhere()
                self._telling = asyncio.get_running_loop().create_task(work, context=contextvars.Context())

    async def _tell_of_elsewhere(self) -> None:
        """Send notifications of upstream changes under the last delivered event's number.

        These changes are not in the log. A client that resumes is notified again.
        """
        try:
            while self._elsewhere:
                uri = next(iter(self._elsewhere))
                del self._elsewhere[uri]
                if await self._may_read(uri) and uri in self._subscribed:
                    self._say(self.position, RESOURCE_UPDATED, {"uri": uri})
        finally:
            self._telling = None

    async def _may_read(self, uri: str) -> bool:
        while True:
            try:
                return await may_read(self._call, uri)
            except Overloaded:
                await asyncio.sleep(BUSY)
