"""A client's place on the stream of a call that another worker has, or had; the other side is in `relays`."""

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
"""The topic that every process with calls on streams follows: `attach` and `detach`."""
ASK_EVERY, ASKS = 1.0, 6
"""Seconds between asking whose call it is, and how often. Without an answer the call is gone with its worker. Where
no wake comes, an answer takes two looks at the log, a second each, and longer on a machine that has too much to do."""
SILENCES = 3
"""Silences, each as long as a stream may be silent, after which the worker of a call counts as gone. After the ones
before it is asked whether the call goes on."""


class Gone(Exception):
    """The stream, or what the client has missed of it, is not remembered."""


class RemoteReader:
    """A place on the stream of a call that another worker has, or had."""

    def __init__(self, feeds: Feeds, spawn: Callable[[Coroutine[Any, Any, None]], object], most: int) -> None:
        self._feeds, self._spawn, self._most = feeds, spawn, most
        self.position = 0
        self.retry: float | None = None
        self._last = 0
        self._waiting: list[Said] = []
        self._over = False
        self._ended = False
        """Did whose call it is say so?"""
        self._asks: Draft | None = None
        self._followings: list[Following] = []
        self._accepted = self._refused = False
        self._news = asyncio.Event()
        self._silences = 0

    async def open(self, session: Any, token: str, after: int) -> None:
        """Find whoever has the stream. Raises Gone when nobody has, or not from there on."""
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
        """What waits; an empty list after `patience` seconds of silence; None at the end."""
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
        """Whose call it is may have been killed: ask, and end after a while, so that the client asks as well."""
        self._silences += 1
        if self._silences >= SILENCES:
            self._over = True
        elif self._asks is not None:
            self._spawn(self._tell(self._asks))

    def leave(self) -> None:
        """Nobody reads here any more."""
        followings, self._followings = self._followings, []
        for following in followings:
            following.stop()
        asked, self._asks = self._asks, None
        if asked is not None and not self._ended:
            # Also when it was given up here: whose call it is would write on for nobody, and take it for heard.
            self._spawn(self._tell(asked._replace(kind="detach")))
        self.end()

    def end(self) -> None:
        """Nothing comes after what waits."""
        self._over = True
        self._news.set()

    async def _tell(self, draft: Draft) -> None:
        try:
            await self._feeds.publish(draft)
        except Exception:
            logger.warning("Whose call it is could not be told of a client on another worker", exc_info=True)

    def _on_event(self, event: Event) -> None:
        self._silences = 0
        match event.kind:
            case "attached":
                self._accepted = True
            case "kept":
                # From a process that has ended; until then it may have answered by itself.
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
                self._over = True  # the client is behind; it can come back for the rest


def topic_of(session: Any, token: str, reader: str | None = None) -> str:
    """Where a call's stream is in the log: for one reader, or what its process left behind."""
    return f"stream:{session}:{token}" if reader is None else f"stream:{session}:{token}:{reader}"
