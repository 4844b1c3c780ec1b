"""Questions of the handshake era: ids that any worker recognises, and answers that reach a worker which did not ask.

A worker that does not know a question has nothing but the id to tell a genuine answer from an invented one: so the id
carries the moment it was made and a mark that is bound to the session. Only an answer under such an id is worth a row
in the log, and each only once.
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
"""The kind of event that carries an answer."""
SKEW = 60.0
"""Seconds by which the clocks of two workers may differ."""
PATIENCE = 1.0
"""Seconds that a question waits until answers can be heard from everywhere."""
MOST_REMEMBERED = 10_000
"""Ids that were made here or passed on before, and so are not passed on (again)."""

_NAME = struct.Struct(">I8s")
"""When the question was asked, in seconds, and what makes it unique."""


def _stop(following: "asyncio.Task[Following]") -> None:
    if following.cancelled():
        return
    problem = following.exception()
    if problem is None:
        following.result().stop()
    else:
        logger.warning("Answers that reached other processes could not be heard", exc_info=problem)


class LoggedReplies:
    """`ports.Replies` over the log of events. `wait` is how many seconds a question waits for its answer."""

    def __init__(self, feeds: Callable[[], Feeds], stamp: Stamp, *, wait: float) -> None:
        self._feeds, self._stamp, self._wait = feeds, stamp, wait
        self._settled: OrderedDict[tuple[Any, str], None] = OrderedDict()

    def new_id(self, session: Session) -> str:
        """An id for a question, unlike any other's in any process."""
        name = base64.urlsafe_b64encode(_NAME.pack(int(time()) & 0xFFFFFFFF, os.urandom(8))).decode("ascii")
        id = self._stamp.mark(name, str(session.pk))
        self._remember(session, id)
        return id

    def is_genuine(self, session: Session, id: jsonrpc.Id) -> bool:
        """Did another process make this id for a question to this session that may still wait?"""
        if (session.pk, id) in self._settled:
            return False
        name = self._stamp.read(id, str(session.pk))
        if name is None:
            return False
        asked, _ = _NAME.unpack(base64.urlsafe_b64decode(name))
        return bool(-SKEW <= time() - asked <= self._wait + SKEW)

    @asynccontextmanager
    async def listening(self, session: Session) -> AsyncIterator[None]:
        """While inside, answers that reached other processes come to `session.answer`."""

        def hear(event: Event) -> None:
            if event.kind == REPLY:
                said = event.payload
                session.answer(jsonrpc.Response(said["id"], said.get("result"), said.get("error")))

        topic, feed = session_topic(session.pk), self._feeds().here()
        following = asyncio.create_task(feed.follow(topic, hear))
        try:
            # A call that is cancelled meanwhile must leave nobody who listens.
            await asyncio.wait([following], timeout=PATIENCE)
            if not following.done():
                # No thread is free to look into the log; perhaps this very question is what keeps one. It is asked all
                # the same, and answers of the meantime are looked up.
                following.cancel()
                following = asyncio.create_task(feed.follow(topic, hear, after=0))
            yield
        finally:
            following.cancel()
            following.add_done_callback(_stop)

    async def forward(self, session: Session, response: jsonrpc.Response) -> None:
        """Put an answer into the log for whoever asked, once for each id. Raises Overloaded when that fails."""
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
                logger.warning("An answer could not be passed on", exc_info=True)
                raise Overloaded("The answer could not be passed on; send it again") from None
            raise

    def _remember(self, session: Session, id: str) -> None:
        self._settled[session.pk, id] = None
        if len(self._settled) > MOST_REMEMBERED:
            self._settled.popitem(last=False)
