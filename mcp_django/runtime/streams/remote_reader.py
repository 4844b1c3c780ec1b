"""Reader of a call stream of another worker; `relay` is the other end."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from mcp_django.runtime.events.event_log import Draft, Event
from mcp_django.runtime.events.follower import Following
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.streams.replay_buffer import Said

logger = logging.getLogger("mcp_django.events")

CONTROL = "streams"
"""Topic of `attach` and `detach` events, for all processes with call streams."""
ASK_EVERY, ASKS = 1.0, 6
"""Seconds between two `attach` requests, and their maximum number.

Without an answer the call has ended with its worker. Without wake-ups an answer takes two polls of the log, a second
each, and longer on an overloaded machine.
"""
SILENCES = 3
"""Number of silent reads after which the worker of a call counts as ended.

Each lasts as long as a stream may be silent. After each earlier one a request checks that the call still runs.
"""


class Gone(Exception):
    """Error: the stream, or the messages that the client missed, are gone."""


class RemoteReader:
    """Reader of a call stream that another worker has, or had."""

    def __init__(self, feeds: Feeds, spawn: Callable[[Coroutine[Any, Any, None]], object], most: int) -> None:
        self._feeds, self._spawn, self._most = feeds, spawn, most
        self.position = 0
        self.retry: float | None = None
        self._last = 0
        self._waiting: list[Said] = []
        self._over = False
        self._ended = False
        """True if the worker of the call has ended the stream."""
        self._asks: Draft | None = None
        self._followings: list[Following] = []
        self._accepted = self._refused = False
        self._news = asyncio.Event()
        self._silences = 0

    async def open(self, session: Any, token: str, after: int) -> None:
        """Find the worker, or the log entries, of a stream.

        Raises:
            StreamGoneError: the stream does not exist, or lacks messages after `after`.
        """
        self.position = self._last = after
        feed, name = self._feeds.here(), secrets.token_urlsafe(9)
        try:
            self._followings.append(await feed.follow(topic_of(session, token), self._on_event, after=0))
            if not self._is_decided():
                self._followings.append(await feed.follow(topic_of(session, token, name), self._on_event))
                wanted = {"session": session, "stream": token, "after": after, "reader": name}
                self._asks = Draft(CONTROL, "attach", wanted)
                await self._ask(self._asks)

            if not self._accepted:
                raise Gone
        except BaseException:
            self.leave()
            raise

    async def _ask(self, draft: Draft) -> None:
        for _ in range(ASKS):
            await self._feeds.publish(draft)
            try:
                async with asyncio.timeout(ASK_EVERY):
                    while not self._is_decided():
                        self._news.clear()
                        await self._news.wait()
                    return
            except TimeoutError:
                continue

    def _is_decided(self) -> bool:
        return self._accepted or self._refused

    async def read(self, patience: float) -> list[Said] | None:
        """Return waiting messages; an empty list after `timeout` seconds, None at the end."""
        if not self._waiting and not self._over:
            self._news.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._news.wait()
            except TimeoutError:
                self._doubt()

        if not self._waiting:
            return None if self._over else []
        said, self._waiting = self._waiting, []
        self.position = said[-1].n
        return said

    def _doubt(self) -> None:
        """Check that the worker of the call is alive.

        After several silent reads end the stream, so that the client reconnects.
        """
        self._silences += 1
        if self._silences >= SILENCES:
            self._over = True
        elif self._asks is not None:
            self._spawn(self._tell(self._asks))

    def leave(self) -> None:
        """Close the reader and detach it from the worker of the call."""
        followings, self._followings = self._followings, []
        for following in followings:
            following.stop()
        asked, self._asks = self._asks, None
        if asked is not None and not self._ended:
            # Also after a failed start: the worker would continue to write, and count the messages as delivered.
            self._spawn(self._tell(asked._replace(kind="detach")))
        self.end()

    def end(self) -> None:
        """End the stream after the waiting messages."""
        self._over = True
        self._news.set()

    async def _tell(self, draft: Draft) -> None:
        try:
            await self._feeds.publish(draft)
        except Exception:
            logger.warning("Failed to send a request to the worker of a call", exc_info=True)

    def _on_event(self, event: Event) -> None:
        self._silences = 0

        match event.kind:
            case "attached":
                self._accepted = True
            case "kept":
                # Written by a process that has ended; it may have answered before.
                fits = event.payload["first"] - 1 <= self.position
                self._accepted, self._refused = self._accepted or fits, self._refused or not fits
            case "dropped":
                self._refused = self._ended = True
            case "message":
                self._take(event.payload["n"], event.payload["text"].encode())
            case "released":
                self.retry, self._over, self._ended = event.payload["retry"], True, True
            case "end":
                self._over = self._ended = True

        self._news.set()

    def _take(self, n: int, message: bytes) -> None:
        if self._accepted and not self._over and n == self._last + 1:
            self._last = n
            self._waiting.append(Said(n, message))
            if len(self._waiting) >= self._most:
                self._over = True  # too many unread messages; the client can resume for the rest


def topic_of(session: Any, token: str, reader: str | None = None) -> str:
    """Return the topic of a call's stream, for one reader or for any later one."""
    return f"stream:{session}:{token}" if reader is None else f"stream:{session}:{token}:{reader}"
