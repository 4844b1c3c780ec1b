"""Messages under stress: none is lost, repeated or received out of order.

Clients are cut off again and again, and wakes, Redis and a worker fail. Each run prints its counts, which `pytest -rP`
shows.
"""

import asyncio
import os
import random
import signal
from dataclasses import replace

import pytest

from tests.support.waiting import eventually
from tests.workers.client import UserClient
from tests.workers.event_log import Difference
from tests.workers.harness import Workers, workers
from tests.workers.listeners import END, SessionListener
from tests.workers.stress import StressOutcome, StressPlan, StressRun
from tests.workers.unreliable_layer import DeliveryFaults

PLAN = StressPlan()
GONE = {400, 404}
"""Statuses for a stream that has gone with its worker."""


def assert_exact(outcome: StressOutcome) -> None:
    """Assert the invariants of every run."""
    print(outcome)
    assert outcome.difference() == Difference()
    assert len(outcome.shared()) == 1, "messages to all are received in different orders"
    for listener, again in zip(outcome.listeners, outcome.again, strict=True):
        missing = len(listener.received) - len(again)
        # Without a priming event the first id is the first message's.
        assert missing in (0, 1), listener.user.name
        assert again == listener.received[missing:], listener.user.name
    assert not outcome.broken()
    assert outcome.reconnects >= outcome.plan.reconnects
    assert not sum(listener.silences for listener in outcome.listeners)


def assert_whole(outcome: StressOutcome) -> None:
    """Assert the invariants of runs without killed workers."""
    assert_exact(outcome)
    assert outcome.received == outcome.plan.sessions * outcome.plan.messages
    assert outcome.uncertain == 0
    assert outcome.given_up == []


def assert_clients_got_errors(outcome: StressOutcome) -> None:
    """Assert that a client without its answer was refused, or has received nothing."""
    assert {reader.refused for reader in outcome.given_up if not reader.unread} <= GONE


async def test_cuts(pair: Workers) -> None:
    assert_whole(await StressRun(pair, replace(PLAN, seed=1)).run())


@pytest.mark.parametrize(
    "faults",
    [DeliveryFaults(lost=0.3), DeliveryFaults(lost=1), DeliveryFaults(lost=0.1, twice=0.3, late=0.4)],
    ids=["30 % lost", "all lost", "lost, repeated and late"],
)
async def test_cuts_and_unreliable_wakes(pair: Workers, faults: DeliveryFaults) -> None:
    pair.set_faults(faults)
    sessions = PLAN.sessions if sum(faults) == faults.lost else PLAN.sessions // 2
    assert_whole(await StressRun(pair, replace(PLAN, sessions=sessions, seed=round(100 * sum(faults)))).run())


async def test_cuts_and_a_redis_that_restarts(pair: Workers) -> None:
    async def restart() -> None:
        await asyncio.sleep(PLAN.seconds / 3)
        redis.stop()
        await asyncio.sleep(1)
        await asyncio.to_thread(redis.start)

    redis = pair.redis
    assert redis is not None
    assert_whole(await StressRun(pair, replace(PLAN, seed=2)).run(restart))
    # Nothing rests on Redis, but workers subscribe again once it is back.
    here, there = pair.ports
    user = await UserClient.initialized("after-the-restart", here)
    listener = SessionListener(user, random.Random(1), lambda: there)
    async with asyncio.TaskGroup() as group:
        group.create_task(listener.listen(lambda: False))
        await listener.listening.wait()
        await eventually(redis.channels, "no worker subscribes again")
        await user.value(here, "send_private", {"source": END, "number": 1})


async def test_cuts_and_a_worker_that_is_killed(own_pair: Workers) -> None:
    """Messages of before and after are received. Calls that it ran are gone, and their clients are refused."""

    async def kill() -> None:
        await asyncio.sleep(PLAN.seconds / 3)
        await asyncio.to_thread(own_pair.stop, own_pair.servers[0], kill=True)
        await asyncio.to_thread(own_pair.start)

    killed = own_pair.ports[0]
    outcome = await StressRun(own_pair, replace(PLAN, seed=3)).run(kill)
    assert_exact(outcome)
    assert {reader.port for reader in outcome.given_up} <= {killed}
    assert_clients_got_errors(outcome)


async def test_two_processes_behind_one_port_one_of_which_is_killed(shared: Workers) -> None:
    """The kernel distributes the connections, and the server restarts a killed worker."""

    async def kill() -> None:
        await asyncio.sleep(PLAN.seconds / 3)
        os.kill(victim, signal.SIGKILL)

    with workers(shared.database, shared.redis, many=1, processes=2) as server:
        victim = server.servers[0].probe()["pid"]
        outcome = await StressRun(server, replace(PLAN, sessions=PLAN.sessions // 2, seed=4)).run(kill)
    assert_exact(outcome)
    assert {reader.process for reader in outcome.given_up} <= {victim, None}
    assert_clients_got_errors(outcome)
