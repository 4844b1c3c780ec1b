"""Subscriptions over all workers: what changed comes from the event log, what sessions want to know is in rows.

A stream of the stateless era lives and ends in the process that has its connection, so nothing of it is written. What a
session subscribed to is a row, because its stream may be on another worker, or be opened later; the stream learns
through the log what is subscribed to meanwhile.
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
"""Seconds after which a client that found no room for its stream may try again."""
BUSY = 1.0
"""Seconds after which is asked again who may read a resource, when nobody had time to say."""

Sink = Callable[[int, bytes], None]


class Listens:
    """How many streams that have no end of their own are open in this process: `most`, and `each` of one owner, who is
    any number of clients if it is the local principal.
    """

    def __init__(self, most: int, each: int) -> None:
        self._most, self._each = most, each
        self._counts: dict[str, int] = {}
        self._all = 0
        # Servers may run a loop in each of their threads.
        self._lock = threading.Lock()

    def enter(self, owner: str) -> None:
        """Count one more. Raises Overloaded."""
        with self._lock:
            count = self._counts.get(owner, 0)
            if count >= self._each and owner != LOCAL_OWNER:
                text = f"You have {self._each} streams open; close one first"
                raise Overloaded(text, status=429, retry_after=RETRY_AFTER)
            if self._all >= self._most:
                raise Overloaded("There are too many streams; try again later", retry_after=RETRY_AFTER)
            self._counts[owner] = count + 1
            self._all += 1

    def leave(self, owner: str) -> None:
        """One less, which had been counted."""
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
    """`ports.Changes` on the event log, for the server of an alias."""

    def __init__(self, alias: str, *, feeds: Feeds, executor: Executor, listens: Listens, most: int) -> None:
        """`most` resources may be subscribed to by one session."""
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
            raise ResourceNotFound(uri)  # no database keeps it, and no template matches it
        since = await self._executor.run(self._insert, session.pk, uri)
        if since is not None:
            # After the row: who opens the stream in between has read it.
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
        # In a clean context, and on a lane of its own: the call, or its connection, may be over.
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
            logger.exception("Not all receivers could be told of a subscription")
        finally:
            lease.close()

    def _insert(self, session: int, uri: str) -> int | None:
        """Write the row; returns the number of the event after which it holds, None when it was there."""
        since = EventLog().head()
        try:
            if not ResourceSubscription.objects.add(session, uri, since=since, most=self._most):
                return None
        except IntegrityError:
            raise InvalidRequest("This session has ended") from None
        except OverflowError:
            text = f"A session may subscribe to {self._most} resources at most; unsubscribe from one first"
            raise InvalidParams(text) from None
        return since


def changes_topic(alias: str) -> str:
    """Where it is said what changed on a server."""
    return f"changes:{alias}"


def session_topic(session: Session) -> str:
    """Where it is said what concerns one session."""
    return f"session:{session.pk}"


def _session(call: Call) -> Session:
    if call.session is None:
        raise InvalidRequest("Say initialize first")
    return call.session


class SessionView:
    """What the stream of a session carries: the log, seen as the session may see it.

    Nothing is copied for a session, so what it missed is found as long as the log has it: the messages of its own
    topic, updates of what it subscribed to, and changes of lists that its revision knows.
    """

    def __init__(self, server: Server, *, feeds: Feeds, executor: Executor) -> None:
        self._server, self._feeds, self._executor = server, feeds, executor
        self._era = HandshakeEra(server)

    async def open(self, session: Session, after: int, sink: Sink, *, connection: Connection, fresh: bool) -> "View":
        """Have `sink` called on the running loop with the number and the encoded JSON-RPC message of each event that
        the session is told of, in their order, from the one after number `after` on. It must neither block nor raise.

        Returns when nothing can be missed any more; what is in the log by then has been given to `sink`. The principal
        of `connection` is asked for permission. A `fresh` stream, which continues no other, says first which lists are
        not what the session was given last. Raises django.db.Error when the log cannot be read.
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
    """A session's open stream, until `stop`."""

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
        """URI → number of the event after which it is told of."""
        self._early: list[Event] | None = []
        """What comes before both topics are followed, whose events would not be in order."""
        self._queue: deque[Event] = deque()
        """What waits behind an event about which somebody has to be asked."""
        self._task: asyncio.Task[None] | None = None
        self._followed = Followed(call, self._changed_elsewhere) if may_follow(call.server) else None
        """The resources of other servers, whose changes are in no log."""
        self._elsewhere: dict[str, None] = {}
        """Those that have changed, and of which is to be told."""
        self._telling: asyncio.Task[None] | None = None

    @property
    def position(self) -> int:
        """The number up to which the sink has been given all that the session is told."""
        if self._early or self._queue:
            return (self._early or self._queue)[0].seq - 1
        return min(following.position for following in self._following)

    def stop(self) -> None:
        """Give the sink nothing more. May be called more than once."""
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
        """Hear of a topic too."""
        self._following.append(await feed.follow(topic, self._hear, after=after))

    def go_live(self, subscribed: Mapping[str, int], stale: Iterable[str], after: int) -> None:
        """All topics are followed. These URIs were subscribed to after these events, and these kinds of lists had
        changed before the one after which the stream begins.
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
        """Give the sink what it should have of an event; False when somebody has to be asked first."""
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
        """It has the number of what was last said: it is in no log, and who comes back for more is told anew."""
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
