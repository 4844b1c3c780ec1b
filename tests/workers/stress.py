"""A run: many sessions listen, receive messages of all workers, call, and are cut off all the time, by a seed."""

import asyncio
import itertools
import random
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.servers.client import HANDSHAKE
from tests.workers.client import UserClient
from tests.workers.event_log import Difference, EventLog, NumberedMessage, total
from tests.workers.harness import Workers
from tests.workers.listeners import CONNECTION_ERRORS, END, CallReader, SessionListener

REVISIONS = (HANDSHAKE, HANDSHAKE, "2025-06-18", "2025-03-26")
"""Of the sessions, in turn. Only the newest primes its streams with an event id."""
RUN_SECONDS = 240.0
"""Real seconds after which a run is taken for stuck."""


@dataclass(frozen=True)
class StressPlan:
    """Amounts of clients and messages."""

    sessions: int = 12
    private: int = 22
    """Messages to each session."""
    changed: int = 8
    """Resources of each session's own that change."""
    shared: int = 5
    """Messages and resource changes that each of two broadcasters sends to all."""
    calls: int = 2
    """Of each session."""
    counted: int = 20
    """Messages of each call before its answer."""
    seconds: float = 3.0
    """Approximate time of publishing."""
    seed: int = 1

    @property
    def messages(self) -> int:
        """Messages that each session gets on its own stream."""
        return self.private + self.changed + 4 * self.shared

    @property
    def reconnects(self) -> int:
        """Cuts that a run waits for: with fewer it proves little."""
        return 5 * self.sessions


@dataclass
class StressOutcome:
    """The outcome of a run."""

    plan: StressPlan
    listeners: list[SessionListener]
    readers: list[CallReader]
    event_log: EventLog
    again: list[list[NumberedMessage]] = field(default_factory=list)
    """Messages that each listener got when it resumed from its first event."""

    def sources(self, listener: SessionListener) -> set[str]:
        """Sources of messages to this listener."""
        name = listener.user.name
        return {
            f"private-{name}",
            f"own-{name}",
            *(f"{what}-{broadcaster}" for what in ("broadcast", "all") for broadcaster in (0, 1)),
        }

    def difference(self) -> Difference:
        """Over all sessions' streams."""
        return total(self.event_log.compare(listener.received, self.sources(listener)) for listener in self.listeners)

    def shared(self) -> set[tuple[NumberedMessage, ...]]:
        """Orders in which messages to all were received: there should be one."""
        both = ("broadcast-", "all-")
        return {
            tuple(said for said in listener.received if said.source.startswith(both)) for listener in self.listeners
        }

    @property
    def received(self) -> int:
        """Messages on sessions' streams."""
        return sum(len(listener.received) for listener in self.listeners)

    @property
    def uncertain(self) -> int:
        """Messages without a response, so the sender does not know if they were published."""
        return sum(map(len, self.event_log.uncertain.values()))

    @property
    def reconnects(self) -> int:
        """Connections beyond the first of each stream."""
        return sum(one.connections - 1 for one in (*self.listeners, *self.readers))

    @property
    def given_up(self) -> list[CallReader]:
        """Calls whose result was not received."""
        return [reader for reader in self.readers if reader.result is None]

    def broken(self) -> list[CallReader]:
        """Calls that neither arrived completely and in order nor ended with an error."""
        whole = list(range(1, self.plan.counted + 1))
        return [
            reader
            for reader in self.readers
            if (reader.numbers != whole if reader.result is not None else not (reader.refused or reader.unread))
            or reader.numbers != whole[: len(reader.numbers)]
        ]

    def __str__(self) -> str:
        delays = sorted(itertools.chain.from_iterable(listener.delays for listener in self.listeners))
        median = f"{statistics.median(delays) * 1000:.0f} ms (median)" if delays else "?"
        return (
            f"{len(self.listeners)} sessions, {self.received} messages, {self.reconnects} reconnects: "
            f"{self.difference()}; "
            f"delivered after {median}; {len(self.readers)} calls of {self.plan.counted + 1} messages, "
            f"{len(self.given_up)} given up, {len(self.broken())} broken; {self.uncertain} uncertain"
        )


class StressRun:
    """The clients of one run."""

    def __init__(self, workers: Workers, plan: StressPlan) -> None:
        self._workers, self.plan = workers, plan
        self._chance = random.Random(plan.seed)
        self._event_log = EventLog()
        self._rough = True
        self._pause = plan.seconds / (plan.private + plan.changed)

    async def run(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> StressOutcome:
        """Run, with a fault at the same time. Raises TimeoutError when it is stuck."""
        async with asyncio.timeout(RUN_SECONDS):
            return await self._run(meanwhile)

    async def _run(self, meanwhile: Callable[[], Awaitable[None]] | None) -> StressOutcome:
        listeners = await asyncio.gather(*(self._open_listener(number) for number in range(self.plan.sessions)))
        readers = [
            CallReader(h.user, self._fork(), self._choose_port) for h in listeners for _ in range(self.plan.calls)
        ]
        broadcasters = [await self._user(f"broadcaster-{number}") for number in (0, 1)]
        outcome = StressOutcome(self.plan, listeners, readers, self._event_log)
        async with asyncio.TaskGroup() as group:
            for listener in listeners:
                group.create_task(listener.listen(lambda: self._rough))
            for listener in listeners:
                await listener.listening.wait()
            async with asyncio.TaskGroup() as busy:
                for listener in listeners:
                    busy.create_task(self._publish_to(listener.user))
                for number, broadcaster in enumerate(broadcasters):
                    busy.create_task(self._broadcast(broadcaster, number))
                for number, reader in enumerate(readers):
                    busy.create_task(self._count(reader, f"call-{number}"))
                if meanwhile is not None:
                    busy.create_task(_awaited(meanwhile))
            # However slow the machine is, there are as many cuts as a run needs.
            while outcome.reconnects < self.plan.reconnects:
                await asyncio.sleep(0.05)
            self._rough = False
            for listener in listeners:
                await self._publish(listener.user, "send_private", END, 1)
        port = self._choose_port()
        outcome.again = await asyncio.gather(*(listener.again(port) for listener in listeners))
        return outcome

    async def _open_listener(self, number: int) -> SessionListener:
        user = await self._user(f"user-{number}", REVISIONS[number % len(REVISIONS)])
        watched = [f"item://own-{user.name}/{n}" for n in range(1, self.plan.changed + 1)]
        watched += [f"item://all-{broadcaster}/{n}" for broadcaster in (0, 1) for n in range(1, self.plan.shared + 1)]
        for uri in watched:
            await user.result(self._choose_port(), "resources/subscribe", {"uri": uri})
        return SessionListener(user, self._fork(), self._choose_port)

    async def _user(self, name: str, revision: str = HANDSHAKE) -> UserClient:
        return await UserClient.initialized(f"{name}-{self.plan.seed}", self._choose_port(), revision)

    async def _publish_to(self, user: UserClient) -> None:
        """Publish all messages for one session."""
        chance = self._fork()
        what = [("send_private", f"private-{user.name}")] * self.plan.private + [
            ("change", f"own-{user.name}")
        ] * self.plan.changed
        chance.shuffle(what)
        await self._publish_all(user, what, chance, self._pause)

    async def _broadcast(self, user: UserClient, broadcaster: int) -> None:
        """Publish all messages for all sessions."""
        chance = self._fork()
        what = [("broadcast", f"broadcast-{broadcaster}"), ("change", f"all-{broadcaster}")] * self.plan.shared
        await self._publish_all(user, what, chance, self.plan.seconds / len(what))

    async def _publish_all(
        self, user: UserClient, what: list[tuple[str, str]], chance: random.Random, pause: float
    ) -> None:
        numbers = {source: itertools.count(1) for _, source in what}
        for tool, source in what:
            await asyncio.sleep(chance.uniform(0, 2 * pause))
            await self._publish(user, tool, source, next(numbers[source]))

    async def _publish(self, user: UserClient, tool: str, source: str, number: int) -> None:
        try:
            await user.value(self._choose_port(), tool, {"source": source, "number": number})
        except CONNECTION_ERRORS:
            self._event_log.uncertain[source].add(number)
        else:
            self._event_log.confirmed[source].append(number)

    async def _count(self, reader: CallReader, tag: str) -> None:
        await asyncio.sleep(self._chance.uniform(0, self.plan.seconds))
        await reader.call("count", {"tag": tag, "times": self.plan.counted})

    def _choose_port(self) -> int:
        return self._chance.choice(self._workers.ports)

    def _fork(self) -> random.Random:
        return random.Random(self._chance.random())


async def _awaited(what: Callable[[], Awaitable[None]]) -> None:
    await what()
