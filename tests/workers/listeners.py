"""Clients that are cut off again and again and resume: one reads a session's stream, the other a call's."""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from tests.support.waiting import WAIT_SECONDS
from tests.workers.client import Message, Stream, UserClient, returned
from tests.workers.event_log import NumberedMessage

ChoosePort = Callable[[], int]
"""The port of some worker that is alive."""
CONNECTION_ERRORS = (OSError, EOFError, TimeoutError)
"""Errors of a client that is cut off, or whose worker is gone."""
CONNECTED = (0.1, 0.8)
"""Seconds that a connection lasts while times are rough."""
SILENCE = WAIT_SECONDS
"""Seconds after which a client expects nothing more, and connects again."""
END = "end"
ITEM = re.compile(r"item://([^/]+)/(\d+)")


class SessionListener:
    """A client that reads the stream of a session until its last message."""

    def __init__(self, user: UserClient, chance: random.Random, place: ChoosePort) -> None:
        self.user, self._chance, self._choose_port = user, chance, place
        self.listening = asyncio.Event()
        """Set when the first connection is open: later messages are for it."""
        self.received: list[NumberedMessage] = []
        self.delays: list[float] = []
        """Seconds between sending and receipt of a message, if known."""
        self.connections = 0
        self.first_id: str | None = None
        self.last_id: str | None = None
        self.silences = 0
        """Count of connections on which nothing came within `SILENCE`."""

    async def listen(self, rough: Callable[[], bool]) -> None:
        """Listen, with cuts while times are rough, to the end. Raises AssertionError when a connection is refused."""
        while True:
            try:
                if await self._once(rough):
                    return
            except CONNECTION_ERRORS:
                await asyncio.sleep(0.02)

    async def _once(self, rough: Callable[[], bool]) -> bool:
        """One connection; is this the end?"""
        now = asyncio.get_running_loop().time
        cut = False  # Is the deadline a cut, or the end of a silence?
        try:
            async with asyncio.timeout(SILENCE) as deadline, self._connected() as stream:
                # Before the first event id, lost messages cannot be requested.
                if rough() and self.last_id is not None:
                    cut = True
                    deadline.reschedule(now() + self._lifetime())
                async for event in stream.events():
                    if not rough():
                        cut = False
                        deadline.reschedule(now() + SILENCE)
                    elif self.last_id is None:
                        cut = True
                        deadline.reschedule(now() + self._lifetime())
                    assert event.id is not None, "an event without an id"
                    self.first_id, self.last_id = self.first_id or event.id, event.id
                    if event.data and self._take(json.loads(event.data)):
                        return True
        except TimeoutError:
            self.silences += not cut
        return False

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Stream]:
        async with self.user.listen(self._choose_port(), self.last_id) as stream:
            assert stream.status == 200, (stream.status, self.last_id)
            self.connections += 1
            self.listening.set()
            try:
                yield stream
            finally:
                stream.cut(reset=self._chance.random() < 0.5)

    def _lifetime(self) -> float:
        return self._chance.uniform(*CONNECTED)

    def _take(self, message: Message) -> bool:
        message_read, at = read(message)
        if message_read.source == END:
            return True
        self.received.append(message_read)
        if at is not None:
            self.delays.append(time.monotonic() - at)
        return False

    async def again(self, port: int) -> list[NumberedMessage]:
        """Read all messages after the first event again, from any worker."""
        received: list[NumberedMessage] = []
        async with asyncio.timeout(2 * SILENCE), self.user.listen(port, self.first_id) as stream:
            assert stream.status == 200, stream.status
            async for event in stream.events():
                if event.data:
                    message_read, _ = read(json.loads(event.data))
                    if message_read.source == END:
                        break
                    received.append(message_read)
        return received


def read(message: Message) -> tuple[NumberedMessage, float | None]:
    """Read a message of the session's stream, and the time at which it was sent, if it has one."""
    params = message["params"]
    if message["method"] == "notifications/resources/updated":
        found = ITEM.fullmatch(params["uri"])
        assert found is not None, message
        return NumberedMessage(found[1], int(found[2])), None
    message_read = params.get("data", params)
    return NumberedMessage(message_read["source"], message_read["number"]), message_read.get("at")


class CallReader:
    """A client whose call sends numbers, and which is cut off before its end."""

    def __init__(self, user: UserClient, chance: random.Random, place: ChoosePort) -> None:
        self.user, self._chance, self._choose_port = user, chance, place
        self.numbers: list[int] = []
        self.result: Any = None
        """The value that the call returned; None before."""
        self.port = 0
        """The port of the worker that runs it."""
        self.process: int | None = None
        """Which process that is."""
        self.refused: int | None = None
        """The status of a worker for a call that has ended."""
        self.connections = 0
        self.unread = False
        """True if the connection was cut before its first event, so there is nothing to resume."""
        self._last_id: str | None = None

    def __repr__(self) -> str:
        return f"<{self.user.name}: {self.numbers}, result {self.result}, refused {self.refused}>"

    async def call(self, tool: str, arguments: Message) -> None:
        """Call, and read the answer to its end through all cuts."""
        self.port = self._choose_port()
        with suppress(*CONNECTION_ERRORS):
            await self._read(self.user.call(self.port, tool, arguments))
        self.unread = self._last_id is None
        while self.result is None and self.refused is None and not self.unread:
            try:
                await self._read(self.user.listen(self._choose_port(), self._last_id))
            except CONNECTION_ERRORS:
                await asyncio.sleep(0.02)

    async def _read(self, connecting: AbstractAsyncContextManager[Stream]) -> None:
        """One connection."""
        now = asyncio.get_running_loop().time
        # A worker that does not run the call asks the others for some seconds.
        async with asyncio.timeout(SILENCE) as patience, connecting as stream:
            if stream.status != 200:
                self.refused = stream.status
                return
            if self._last_id is not None:
                patience.reschedule(now() + self._chance.uniform(*CONNECTED))
            self.connections += 1
            try:
                async for event in stream.events():
                    if self._last_id is None:
                        patience.reschedule(now() + self._chance.uniform(*CONNECTED))
                    assert event.id is not None, "an event without an id"
                    self._last_id = event.id
                    if event.data:
                        self._take(json.loads(event.data))
            finally:
                stream.cut(reset=self._chance.random() < 0.5)

    def _take(self, message: Message) -> None:
        if "method" not in message:
            self.result = returned(message["result"])
        elif message["method"] == "notifications/progress":
            self.numbers.append(int(message["params"]["progress"]))
        else:
            data = message["params"]["data"]
            self.numbers.append(data["number"])
            self.process = data["pid"]
