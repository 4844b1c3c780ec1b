"""Nothing is lost, heard twice or heard out of order, however often clients are cut off and whatever becomes of wakes,
of Redis, and of a worker.

Each run prints what it counted: read it with pytest -rP.
"""

import asyncio
import os
import random
import signal
import statistics
import time
from dataclasses import replace

import pytest

from tests.workers.client import Person
from tests.workers.conftest import AT_FULL
from tests.workers.harness import Workers, workers
from tests.workers.hearing import END, Hearer
from tests.workers.layers import Fate
from tests.workers.ledger import Difference
from tests.workers.turmoil import Outcome, Plan, Turmoil

_SMALL = Plan(sessions=4, told=6, changed=4, shared=1, calls=1, counted=10, seconds=2)
PLAN = Plan() if AT_FULL else _SMALL
GONE = {400, 404}
"""What a client is told of a stream that has gone with its worker."""


def assert_exact(outcome: Outcome) -> None:
    """What holds for every run."""
    print(outcome)
    assert outcome.difference() == Difference()
    assert len(outcome.shared()) == 1, "what is said to all is heard in different orders"
    for hearer, again in zip(outcome.hearers, outcome.again, strict=True):
        missing = len(hearer.heard) - len(again)
        # Without a priming event the first id is the first message's.
        assert missing in (0, 1), hearer.person.name
        assert again == hearer.heard[missing:], hearer.person.name
    assert not outcome.broken()
    assert outcome.reconnects >= outcome.plan.reconnects
    assert not sum(hearer.silences for hearer in outcome.hearers)


def assert_whole(outcome: Outcome) -> None:
    """What holds as long as every worker lives."""
    assert_exact(outcome)
    assert outcome.heard == outcome.plan.sessions * outcome.plan.messages
    assert outcome.unsure == 0
    assert outcome.given_up == []


def assert_told(outcome: Outcome) -> None:
    """Nobody takes half of an answer for the whole: they are told, or have heard nothing at all."""
    assert {caller.refused for caller in outcome.given_up if not caller.unheard} <= GONE


async def test_cuts(pair: Workers) -> None:
    assert_whole(await Turmoil(pair, replace(PLAN, seed=1)).run())


@pytest.mark.parametrize(
    "fate",
    [Fate(lost=0.3), Fate(lost=1), Fate(lost=0.1, twice=0.3, late=0.4)],
    ids=["30 % lost", "all lost", "lost, repeated and late"],
)
async def test_cuts_and_unreliable_wakes(waking: Workers, fate: Fate) -> None:
    waking.wakes(fate)
    sessions = PLAN.sessions if sum(fate) == fate.lost else PLAN.sessions // 2
    assert_whole(await Turmoil(waking, replace(PLAN, sessions=sessions, seed=round(100 * sum(fate)))).run())


async def test_cuts_and_a_redis_that_restarts(waking: Workers) -> None:
    async def restart() -> None:
        await asyncio.sleep(PLAN.seconds / 3)
        redis.stop()
        await asyncio.sleep(1)
        await asyncio.to_thread(redis.start)

    redis = waking.redis
    assert redis is not None
    assert_whole(await Turmoil(waking, replace(PLAN, seed=2)).run(restart))
    # Nothing rests on Redis, but it is of use again once it is back.
    end = time.monotonic() + 15
    while (delay := await delivery(waking)) > 0.3:
        assert time.monotonic() < end, f"after the restart wakes do not arrive: {delay:.2f} s"


async def delivery(pair: Workers) -> float:
    """The median time from one worker to a listener on the other, in seconds."""
    here, there = pair.ports
    person = await Person.initialized(f"waiting-{time.monotonic_ns()}", here)
    hearer = Hearer(person, random.Random(1), lambda: there)
    async with asyncio.TaskGroup() as group:
        group.create_task(hearer.listen(lambda: False))
        await hearer.listening.wait()
        for number in range(5):
            await person.value(here, "tell", {"source": "one", "number": number})
        await person.value(here, "tell", {"source": END, "number": 1})
    return statistics.median(hearer.delays)


async def test_cuts_and_a_worker_that_is_killed(fresh: Workers) -> None:
    """What was said before and after is heard; calls that it ran are gone, and their clients are told."""

    async def kill() -> None:
        await asyncio.sleep(PLAN.seconds / 3)
        await asyncio.to_thread(fresh.stop, fresh.servers[0], kill=True)
        await asyncio.to_thread(fresh.start)

    killed = fresh.ports[0]
    outcome = await Turmoil(fresh, replace(PLAN, seed=3)).run(kill)
    assert_exact(outcome)
    assert {caller.port for caller in outcome.given_up} <= {killed}
    assert_told(outcome)


async def test_two_processes_behind_one_port_one_of_which_is_killed(running: Workers) -> None:
    """The same where the kernel says which worker gets a connection, and the server brings back a worker that died."""

    async def kill() -> None:
        await asyncio.sleep(PLAN.seconds / 3)
        os.kill(victim, signal.SIGKILL)

    with workers(running.database, running.redis, many=1, processes=2) as server:
        victim = server.servers[0].probe()["pid"]
        outcome = await Turmoil(server, replace(PLAN, sessions=PLAN.sessions // 2, seed=4)).run(kill)
    assert_exact(outcome)
    assert {caller.process for caller in outcome.given_up} <= {victim, None}
    assert_told(outcome)
