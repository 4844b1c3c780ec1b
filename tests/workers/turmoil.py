"""A run: many sessions listen, are told things by all workers, call, and are cut off all the time, by a seed."""

import asyncio
import itertools
import random
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.servers.client import HANDSHAKE
from tests.workers.client import Person
from tests.workers.harness import Workers
from tests.workers.hearing import BROKEN, END, Caller, Hearer
from tests.workers.ledger import Difference, Ledger, Said, total

REVISIONS = (HANDSHAKE, HANDSHAKE, "2025-06-18", "2025-03-26")
"""Of the sessions, in turn. Only the newest primes its streams with an event id."""
PATIENCE = 90.0
"""Seconds within which a run is over, on a machine that is busy with others."""


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    sessions: int = 12
    told: int = 22
    """Messages to each session."""
    changed: int = 8
    """Resources of each session's own that change."""
    shared: int = 5
    """Things that each of two criers says to all, and resources that each of them changes for all."""
    calls: int = 2
    """Of each session."""
    counted: int = 20
    """Messages of each call before its answer."""
    seconds: float = 3.0
    """How long the telling takes, about."""
    seed: int = 1

    @property
    def messages(self) -> int:
        """What each session is to hear on its own stream."""
        return self.told + self.changed + 4 * self.shared

    @property
    def reconnects(self) -> int:
        """With fewer the run proves little."""
        return 5 * self.sessions


@dataclass
class Outcome:
    """What came of a run."""

    plan: Plan
    hearers: list[Hearer]
    callers: list[Caller]
    ledger: Ledger
    again: list[list[Said]] = field(default_factory=list)
    """What each hearer was given when it asked for everything once more."""

    def sources(self, hearer: Hearer) -> set[str]:
        """Who speaks to this one."""
        name = hearer.person.name
        return {f"told-{name}", f"own-{name}", *(f"{what}-{crier}" for what in ("cry", "all") for crier in (0, 1))}

    def difference(self) -> Difference:
        """Over all sessions' streams."""
        return total(self.ledger.compare(hearer.heard, self.sources(hearer)) for hearer in self.hearers)

    def shared(self) -> set[tuple[Said, ...]]:
        """What was said to all, in the orders in which it was heard: there should be one."""
        both = ("cry-", "all-")
        return {tuple(said for said in hearer.heard if said.source.startswith(both)) for hearer in self.hearers}

    @property
    def heard(self) -> int:
        """Messages on sessions' streams."""
        return sum(len(hearer.heard) for hearer in self.hearers)

    @property
    def unsure(self) -> int:
        """Things said of which the speaker does not know whether they were."""
        return sum(map(len, self.ledger.unsure.values()))

    @property
    def reconnects(self) -> int:
        """Connections beyond the first of each stream."""
        return sum(one.connections - 1 for one in (*self.hearers, *self.callers))

    @property
    def given_up(self) -> list[Caller]:
        """Calls whose result was not heard."""
        return [caller for caller in self.callers if caller.result is None]

    def broken(self) -> list[Caller]:
        """Calls that were neither heard to the end, exactly and in order, nor given up by being told so."""
        whole = list(range(1, self.plan.counted + 1))
        return [
            caller
            for caller in self.callers
            if (caller.numbers != whole if caller.result is not None else not (caller.refused or caller.unheard))
            or caller.numbers != whole[: len(caller.numbers)]
        ]

    def __str__(self) -> str:
        delays = sorted(itertools.chain.from_iterable(hearer.delays for hearer in self.hearers))
        median = f"{statistics.median(delays) * 1000:.0f} ms (median)" if delays else "?"
        return (
            f"{len(self.hearers)} sessions, {self.heard} messages, {self.reconnects} reconnects: {self.difference()}; "
            f"delivered after {median}; {len(self.callers)} calls of {self.plan.counted + 1} messages, "
            f"{len(self.given_up)} given up, {len(self.broken())} broken; {self.unsure} unsure"
        )


class Turmoil:
    """The people of one run, and what they do."""

    def __init__(self, workers: Workers, plan: Plan) -> None:
        self._workers, self.plan = workers, plan
        self._chance = random.Random(plan.seed)
        self._ledger = Ledger()
        self._rough = True
        self._pause = plan.seconds / (plan.told + plan.changed)

    async def run(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Outcome:
        """The run, with something that happens while it goes on. Raises TimeoutError when somebody waits for ever."""
        async with asyncio.timeout(PATIENCE):
            return await self._run(meanwhile)

    async def _run(self, meanwhile: Callable[[], Awaitable[None]] | None) -> Outcome:
        hearers = await asyncio.gather(*(self._arrive(number) for number in range(self.plan.sessions)))
        callers = [Caller(h.person, self._fork(), self._place) for h in hearers for _ in range(self.plan.calls)]
        criers = [await self._person(f"crier-{number}") for number in (0, 1)]
        outcome = Outcome(self.plan, hearers, callers, self._ledger)
        async with asyncio.TaskGroup() as group:
            for hearer in hearers:
                group.create_task(hearer.listen(lambda: self._rough))
            for hearer in hearers:
                await hearer.listening.wait()
            async with asyncio.TaskGroup() as busy:
                for hearer in hearers:
                    busy.create_task(self._speak(hearer.person))
                for number, crier in enumerate(criers):
                    busy.create_task(self._cry(crier, number))
                for number, caller in enumerate(callers):
                    busy.create_task(self._count(caller, f"call-{number}"))
                if meanwhile is not None:
                    busy.create_task(_awaited(meanwhile))
            self._rough = False
            for hearer in hearers:
                await self._say(hearer.person, "tell", END, 1)
        port = self._place()
        outcome.again = await asyncio.gather(*(hearer.again(port) for hearer in hearers))
        return outcome

    async def _arrive(self, number: int) -> Hearer:
        person = await self._person(f"person-{number}", REVISIONS[number % len(REVISIONS)])
        watched = [f"item://own-{person.name}/{n}" for n in range(1, self.plan.changed + 1)]
        watched += [f"item://all-{crier}/{n}" for crier in (0, 1) for n in range(1, self.plan.shared + 1)]
        for uri in watched:
            await person.result(self._place(), "resources/subscribe", {"uri": uri})
        return Hearer(person, self._fork(), self._place)

    async def _person(self, name: str, revision: str = HANDSHAKE) -> Person:
        return await Person.initialized(f"{name}-{self.plan.seed}", self._place(), revision)

    async def _speak(self, person: Person) -> None:
        """Tell somebody everything that is for them alone."""
        chance = self._fork()
        what = [("tell", f"told-{person.name}")] * self.plan.told + [
            ("change", f"own-{person.name}")
        ] * self.plan.changed
        chance.shuffle(what)
        await self._say_all(person, what, chance, self._pause)

    async def _cry(self, person: Person, crier: int) -> None:
        """Tell everybody what is for all."""
        chance = self._fork()
        what = [("cry", f"cry-{crier}"), ("change", f"all-{crier}")] * self.plan.shared
        await self._say_all(person, what, chance, self.plan.seconds / len(what))

    async def _say_all(self, person: Person, what: list[tuple[str, str]], chance: random.Random, pause: float) -> None:
        numbers = {source: itertools.count(1) for _, source in what}
        for tool, source in what:
            await asyncio.sleep(chance.uniform(0, 2 * pause))
            await self._say(person, tool, source, next(numbers[source]))

    async def _say(self, person: Person, tool: str, source: str, number: int) -> None:
        try:
            await person.value(self._place(), tool, {"source": source, "number": number})
        except BROKEN:
            self._ledger.unsure[source].add(number)
        else:
            self._ledger.certain[source].append(number)

    async def _count(self, caller: Caller, tag: str) -> None:
        await asyncio.sleep(self._chance.uniform(0, self.plan.seconds))
        await caller.call("count", {"tag": tag, "times": self.plan.counted})

    def _place(self) -> int:
        return self._chance.choice(self._workers.ports)

    def _fork(self) -> random.Random:
        return random.Random(self._chance.random())


async def _awaited(what: Callable[[], Awaitable[None]]) -> None:
    await what()
