"""Pending requests to clients: verifiable ids and forwarded replies.

Used in the handshake era. A reply may reach a worker that did not send the request and has only the id to verify it.
The id therefore contains its creation time and a signature bound to the session. Only replies with a valid id are
written to the event log, once for each id.
"""

import asyncio
import base64
import logging
import os
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import time
from typing import Any

from django.db import Error

from mcp_django.protocol import jsonrpc
from mcp_django.runtime.events.event_log import Draft, Event
from mcp_django.runtime.events.follower import Following
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.sealing import Stamp
from mcp_django.runtime.sessions.events import session_topic
from mcp_django.server.calls.session import Session
from mcp_django.server.ports import Overloaded

logger = logging.getLogger("mcp_django.sessions")

REPLY = "reply"
"""Kind of event that carries a reply."""
SKEW = 60.0
"""Maximum clock difference between two workers, in seconds."""
PATIENCE = 1.0
"""Maximum seconds that a request waits for the subscription to forwarded replies."""
MOST_REMEMBERED = 10_000
"""Maximum number of remembered ids that must not be forwarded (again)."""

_NAME = struct.Struct(">I8s")
"""Binary form of an id: creation time in seconds and random bytes."""


def _stop(following: "asyncio.Task[Following]") -> None:
    if following.cancelled():
        return
    problem = following.exception()
    if problem is None:
        following.result().stop()
    else:
        logger.warning("Failed to subscribe to replies that reach other processes", exc_info=problem)


class LoggedReplies:
    """Implementation of `ports.PendingRequests` on the event log.

    `timeout` is the maximum number of seconds that a request waits for its reply.
    """

    def __init__(self, feeds: Callable[[], Feeds], stamp: Stamp, *, wait: float) -> None:
        self._feeds, self._stamp, self._wait = feeds, stamp, wait
        self._settled: OrderedDict[tuple[Any, str], None] = OrderedDict()

    def new_id(self, session: Session) -> str:
        """Return a new request id, unique across processes."""
        name = base64.urlsafe_b64encode(_NAME.pack(int(time()) & 0xFFFFFFFF, os.urandom(8))).decode("ascii")
        id = self._stamp.mark(name, str(session.pk))
        self._remember(session, id)
        return id

    def is_genuine(self, session: Session, id: jsonrpc.Id) -> bool:
        """Return True if another process may have a pending request with this id."""
        if (session.pk, id) in self._settled:
            return False
        name = self._stamp.read(id, str(session.pk))
        if name is None:
            return False
        asked, _ = _NAME.unpack(base64.urlsafe_b64decode(name))
        return bool(-SKEW <= time() - asked <= self._wait + SKEW)

    @asynccontextmanager
    async def listening(self, session: Session) -> AsyncIterator[None]:
        """Deliver replies that reach other processes to `session.answer` inside the block."""

        def hear(event: Event) -> None:
            if event.kind == REPLY:
                said = event.payload
                session.answer(jsonrpc.Response(said["id"], said.get("result"), said.get("error")))

        topic, feed = session_topic(session.pk), self._feeds().here()
        following = asyncio.create_task(feed.follow(topic, hear))
        try:
            # `asyncio.wait` keeps the task if the call is cancelled, so that the subscription can be stopped below.
            await asyncio.wait([following], timeout=PATIENCE)
            if not following.done():
                # No free thread to read the log; perhaps this request itself blocks one. Send the request anyway, and
                # read the replies of the past from the log later.
                following.cancel()
                following = asyncio.create_task(feed.follow(topic, hear, after=0))
            yield
        finally:
            following.cancel()
            following.add_done_callback(_stop)

    async def forward(self, session: Session, response: jsonrpc.Response) -> None:
        """Publish a reply for the worker that sent the request, once for each id.

        Raises:
            Overloaded: the event log is unavailable.
        """
        assert isinstance(response.id, str)
        self._remember(session, response.id)
        said = {"id": response.id, "result": response.result}
        if response.error is not None:
            said = {"id": response.id, "error": response.error}

        try:
            await self._feeds().publish(Draft(session_topic(session.pk), REPLY, said))
        except BaseException as problem:
            self._settled.pop((session.pk, response.id), None)
            if isinstance(problem, Error):
                logger.warning("Failed to forward a client's reply", exc_info=True)
                raise Overloaded("The reply could not be forwarded; send it again") from None
            raise

    def _remember(self, session: Session, id: str) -> None:
        self._settled[session.pk, id] = None
        if len(self._settled) > MOST_REMEMBERED:
            self._settled.popitem(last=False)
