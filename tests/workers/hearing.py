"""Clients that are cut off again and again, and take up where they were: one hears a session's stream, one a call's."""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from tests.workers.client import Message, Person, Stream, returned
from tests.workers.ledger import Said

Place = Callable[[], int]
"""The port of some worker that is alive."""
BROKEN = (OSError, EOFError, TimeoutError)
"""What happens to somebody who is cut off, or whose worker is gone."""
CONNECTED = (0.1, 0.8)
"""Seconds that a connection lasts while times are rough."""
SILENCE = 20.0
"""Seconds after which a client does not believe that anything will come, and connects anew."""
END = "end"
ITEM = re.compile(r"item://([^/]+)/(\d+)")


class Hearer:
    """Somebody who listens to a session's stream until the session is told that this was all."""

    def __init__(self, person: Person, chance: random.Random, place: Place) -> None:
        self.person, self._chance, self._place = person, chance, place
        self.listening = asyncio.Event()
        """Set when the first connection is up: what is said from now on is for it."""
        self.heard: list[Said] = []
        self.delays: list[float] = []
        """Seconds from the moment something was said to the moment it was heard, where that is known."""
        self.connections = 0
        self.first_id: str | None = None
        self.last_id: str | None = None
        self.silences = 0
        """How often nothing came for longer than anybody would wait."""

    async def listen(self, rough: Callable[[], bool]) -> None:
        """Listen, with cuts while times are rough, to the end. Raises AssertionError when a connection is refused."""
        while True:
            try:
                if await self._once(rough):
                    return
            except BROKEN:
                await asyncio.sleep(0.02)

    async def _once(self, rough: Callable[[], bool]) -> bool:
        """One connection; is this the end?"""
        now = asyncio.get_running_loop().time
        # Before there is an id, what a cut would lose cannot be asked for.
        soon = now() + (self._lifetime() if rough() and self.last_id is not None else SILENCE)
        try:
            async with asyncio.timeout_at(soon) as patience, self._connected() as stream:
                async for event in stream.events():
                    if not rough():
                        patience.reschedule(now() + SILENCE)
                    elif self.last_id is None:
                        patience.reschedule(now() + self._lifetime())
                    assert event.id is not None, "an event that nobody can resume after"
                    self.first_id, self.last_id = self.first_id or event.id, event.id
                    if event.data and self._take(json.loads(event.data)):
                        return True
        except TimeoutError:
            self.silences += now() >= soon + SILENCE
        return False

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Stream]:
        async with self.person.listen(self._place(), self.last_id) as stream:
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
        said, at = read(message)
        if said.source == END:
            return True
        self.heard.append(said)
        if at is not None:
            self.delays.append(time.monotonic() - at)
        return False

    async def again(self, port: int) -> list[Said]:
        """Everything after the first event once more, from a worker that need not have said any of it."""
        heard: list[Said] = []
        async with asyncio.timeout(SILENCE), self.person.listen(port, self.first_id) as stream:
            assert stream.status == 200, stream.status
            async for event in stream.events():
                if event.data:
                    said, _ = read(json.loads(event.data))
                    if said.source == END:
                        break
                    heard.append(said)
        return heard


def read(message: Message) -> tuple[Said, float | None]:
    """What a message of the session's stream says, and when it was said, if it tells."""
    params = message["params"]
    if message["method"] == "notifications/resources/updated":
        found = ITEM.fullmatch(params["uri"])
        assert found is not None, message
        return Said(found[1], int(found[2])), None
    said = params.get("data", params)
    return Said(said["source"], said["number"]), said.get("at")


class Caller:
    """Somebody whose call counts aloud, and who is cut off meanwhile."""

    def __init__(self, person: Person, chance: random.Random, place: Place) -> None:
        self.person, self._chance, self._place = person, chance, place
        self.numbers: list[int] = []
        self.result: Any = None
        """What the call returned; None while it has not."""
        self.port = 0
        """Where the worker is that runs it."""
        self.process: int | None = None
        """Which process that is."""
        self.refused: int | None = None
        """The status with which a worker said that there is no such call any more."""
        self.connections = 0
        self.unheard = False
        """Was it cut off before it had been told anything? Then there is nothing to resume."""
        self._last_id: str | None = None

    def __repr__(self) -> str:
        return f"<{self.person.name}: {self.numbers}, result {self.result}, refused {self.refused}>"

    async def call(self, tool: str, arguments: Message) -> None:
        """Call, and read the answer to its end through all cuts."""
        self.port = self._place()
        with suppress(*BROKEN):
            await self._read(self.person.call(self.port, tool, arguments))
        self.unheard = self._last_id is None
        while self.result is None and self.refused is None and not self.unheard:
            try:
                await self._read(self.person.listen(self._place(), self._last_id))
            except BROKEN:
                await asyncio.sleep(0.02)

    async def _read(self, connecting: AbstractAsyncContextManager[Stream]) -> None:
        """One connection."""
        now = asyncio.get_running_loop().time
        # A worker that does not run the call takes its time to find out that nobody does: it asks for seconds.
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
                    assert event.id is not None, "an event that nobody can resume after"
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
