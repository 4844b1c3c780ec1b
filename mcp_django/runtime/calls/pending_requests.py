"""Pending requests to clients: verifiable ids and forwarded replies.

Used in the handshake era. A reply may reach a worker that did not send the request and has only the id to verify it.
The id therefore contains its creation time and a signature bound to the session. Only replies with a valid id are
written to the event log, once for each id.
"""

import asyncio
import base64
import os
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from time import time
from typing import Any

from django.db import Error

from mcp_django.aio.clock import monotonic
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.event_log import Event, EventDraft
from mcp_django.runtime.events.follower import TopicSubscription
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.sealing import NameSigner
from mcp_django.runtime.sessions.events import session_topic
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import Overloaded

logger = get_logger("mcp_django.sessions")

REPLY_KIND = "reply"
"""Kind of event that carries a reply."""
MAX_CLOCK_SKEW_SECONDS = 60.0
"""Maximum clock difference between two workers, in seconds."""
WARNING_INTERVAL_SECONDS = 60.0
"""Minimum seconds between two warnings of discarded replies."""
SUBSCRIBE_TIMEOUT_SECONDS = 1.0
"""Maximum seconds that a request waits for the subscription to forwarded replies."""
MAX_REMEMBERED_IDS = 10_000
"""Maximum number of remembered ids that must not be forwarded (again)."""

_ID_FORMAT = struct.Struct(">I8s")
"""Binary form of an id: creation time in seconds and random bytes."""


def _stop_subscription(subscription: "asyncio.Task[TopicSubscription]") -> None:
    if subscription.cancelled():
        return
    problem = subscription.exception()
    if problem is None:
        subscription.result().stop()
    else:
        logger.warning("Failed to subscribe to replies that reach other processes", exc_info=problem)


@dataclass(eq=False, repr=False)
class EventLogPendingRequests:
    """Implementation of `ports.PendingRequests` on the event log.

    `timeout` is the maximum number of seconds that a request waits for its reply.
    """

    publisher: EventPublisher
    signer: NameSigner
    _: KW_ONLY
    timeout: float
    get_time: Callable[[], float] = time
    """Function that returns the seconds since the epoch on a clock that all processes share."""
    _next_warning: float = field(default=0.0, init=False)
    _handled_ids: OrderedDict[tuple[Any, str], None] = field(default_factory=OrderedDict, init=False)

    def new_id(self, session: ServerSession) -> str:
        """Return a new request id, unique across processes."""
        created = int(self.get_time()) & 0xFFFFFFFF
        name = base64.urlsafe_b64encode(_ID_FORMAT.pack(created, os.urandom(8))).decode("ascii")
        id = self.signer.sign(name, str(session.pk))
        self._remember_id(session, id)
        return id

    def is_valid_id(self, session: ServerSession, id: jsonrpc.Id) -> bool:
        """Return True if another process may have a pending request with this id."""
        if (session.pk, id) in self._handled_ids:
            return False
        name = self.signer.unsign(id, str(session.pk))
        if name is None:
            return False
        created, _ = _ID_FORMAT.unpack(base64.urlsafe_b64decode(name))
        age: float = self.get_time() - created
        if -MAX_CLOCK_SKEW_SECONDS <= age <= self.timeout + MAX_CLOCK_SKEW_SECONDS:
            return True
        self._warn_of_age(age)
        return False

    def _warn_of_age(self, age: float) -> None:
        """Log that a signed id is not accepted; at most once a minute, because clients may repeat a reply."""
        now = monotonic()
        if now >= self._next_warning:
            self._next_warning = now + WARNING_INTERVAL_SECONDS
            logger.warning(
                "Reply discarded: its request was sent %.0f seconds ago, and requests wait for %.0f seconds. The reply "
                "is late, or the clocks of the processes differ",
                age,
                self.timeout,
            )

    @asynccontextmanager
    async def accept_forwarded(self, session: ServerSession) -> AsyncIterator[None]:
        """Deliver replies that reach other processes to `session.answer` inside the block."""

        def on_event(event: Event) -> None:
            if event.kind == REPLY_KIND:
                said = event.payload
                session.receive_response(jsonrpc.Response(said["id"], said.get("result"), said.get("error")))

        topic, follower = session_topic(session.pk), self.publisher.get_follower()
        subscription = asyncio.create_task(follower.subscribe(topic, on_event))
        try:
            # `asyncio.wait` keeps the task if the call is cancelled, so that the subscription can be stopped below.
            await asyncio.wait([subscription], timeout=SUBSCRIBE_TIMEOUT_SECONDS)
            if not subscription.done():
                # No free thread to read the log; perhaps this request itself blocks one. Send the request anyway, and
                # read the replies of the past from the log later.
                subscription.cancel()
                subscription = asyncio.create_task(follower.subscribe(topic, on_event, after=0))
            yield
        finally:
            subscription.cancel()
            subscription.add_done_callback(_stop_subscription)

    async def forward(self, session: ServerSession, response: jsonrpc.Response) -> None:
        """Publish a reply for the worker that sent the request, once for each id.

        Raises:
            Overloaded: the event log is unavailable.
        """
        assert isinstance(response.id, str)
        self._remember_id(session, response.id)
        payload = {"id": response.id, "result": response.result}
        if response.error is not None:
            payload = {"id": response.id, "error": response.error}

        try:
            await self.publisher.publish(EventDraft(session_topic(session.pk), REPLY_KIND, payload))
        except BaseException as problem:
            self._handled_ids.pop((session.pk, response.id), None)
            if isinstance(problem, Error):
                logger.warning("Failed to forward a client's reply", exc_info=True)
                raise Overloaded("The reply could not be forwarded; send it again") from None
            raise

    def _remember_id(self, session: ServerSession, id: str) -> None:
        self._handled_ids[session.pk, id] = None
        if len(self._handled_ids) > MAX_REMEMBERED_IDS:
            self._handled_ids.popitem(last=False)
