"""The rows behind `once(durable=True)` and states for a single use."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from mcp_django.models import OnceResult, SpentState
from mcp_django.runtime.calls import idempotency as module
from mcp_django.runtime.calls.idempotency import DatabaseIdempotencyStore, delete_expired
from mcp_django.runtime.threads.executor import LeasingExecutor

from .serving import Gate, eventually, real_threads, serve

pytestmark = real_threads
TTL = 3600.0


def with_ledger(main: Any, **options: Any) -> Any:
    async def run(executor: LeasingExecutor) -> Any:
        return await main(DatabaseIdempotencyStore(executor), executor)

    return serve(run, **{"queue": 100, **options})


def test_a_claim_is_given_once_and_says_what_came_of_it() -> None:
    async def main(ledger: DatabaseIdempotencyStore, executor: LeasingExecutor) -> None:
        assert await ledger.claim("a", owner="ada", ttl=TTL)
        elsewhere = DatabaseIdempotencyStore(executor)
        assert not await elsewhere.claim("a", owner="ada", ttl=TTL)
        assert await elsewhere.get_outcome("a") is None
        await ledger.record_outcome("a", {"value": [1, "x\0y", 2**53 + 1, None, {"é": 0.1}]})
        assert await elsewhere.get_outcome("a") == {"value": [1, "x\0y", 2**53 + 1, None, {"é": 0.1}]}

    with_ledger(main)
    row = OnceResult.objects.get()
    assert (row.owner, row.done_at is not None) == ("ada", True)
    assert row.expires - row.claimed_at > timedelta(seconds=TTL - 5)


def test_what_is_known_is_not_replaced() -> None:
    async def main(ledger: DatabaseIdempotencyStore, _: Any) -> None:
        await ledger.claim("a", owner="ada", ttl=TTL)
        await ledger.record_outcome("a", {"error": "No\0 funds"})
        ledger.mark_unknown("a")
        await eventually(lambda: not ledger._tasks)
        assert await ledger.get_outcome("a") == {"error": "No\0 funds"}

    with_ledger(main)


def test_what_is_given_up_is_unknown_at_once() -> None:
    async def main(ledger: DatabaseIdempotencyStore, _: Any) -> None:
        await ledger.claim("a", owner="ada", ttl=TTL)
        ledger.mark_unknown("a")
        await eventually(lambda: not ledger._tasks)
        assert await ledger.get_outcome("a") == {}

    with_ledger(main)


def test_an_outcome_is_written_although_its_call_is_cancelled(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    record = module._write_outcome

    def slow(*arguments: Any) -> None:
        gate()
        record(*arguments)

    monkeypatch.setattr(module, "_write_outcome", slow)

    async def main(ledger: DatabaseIdempotencyStore, _: Any) -> None:
        await ledger.claim("a", owner="ada", ttl=TTL)
        call = asyncio.create_task(ledger.record_outcome("a", {"value": 1}))
        await gate.until_reached()
        call.cancel()
        await asyncio.wait([call])
        gate.opened.set()
        await eventually(lambda: not ledger._tasks)
        assert await ledger.get_outcome("a") == {"value": 1}

    with_ledger(main)


def test_a_row_that_is_gone_is_an_unknown_outcome() -> None:
    async def main(ledger: DatabaseIdempotencyStore, _: Any) -> None:
        assert await ledger.get_outcome("never claimed") == {}

    with_ledger(main)


@pytest.mark.parametrize("what", ["claim", "spend"])
def test_of_many_who_try_at_once_one_succeeds(what: str) -> None:
    """Each in a thread with a connection of its own, as in processes of their own."""
    ledger, start, won = DatabaseIdempotencyStore(LeasingExecutor()), threading.Barrier(8), []

    def attempt(number: int) -> None:
        soon = timezone.now() + timedelta(hours=1)
        claim, use = OnceResult(key_hash="a", owner=str(number), expires=soon), SpentState(digest="a", expires=soon)
        try:
            start.wait()
            if ledger._insert(claim if what == "claim" else use):
                won.append(number)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    if what == "claim":
        assert OnceResult.objects.get().owner == str(won[0])


def test_something_is_spent_once() -> None:
    async def main(ledger: DatabaseIdempotencyStore, _: Any) -> None:
        tries = await asyncio.gather(*(ledger.consume("a", ttl=TTL) for _ in range(5)))
        assert sorted(tries) == [False] * 4 + [True]
        assert await ledger.consume("b", ttl=TTL)

    with_ledger(main)


def test_what_has_expired_is_deleted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PURGED_ROWS", 2)

    async def main(ledger: DatabaseIdempotencyStore, _: Any) -> None:
        for number in range(3):
            await ledger.claim(f"old {number}", owner="ada", ttl=-1)
            await ledger.consume(f"old {number}", ttl=-1)
        await ledger.claim("new", owner="ada", ttl=TTL)
        ledger._next_purge = 0.0
        await ledger.consume("new", ttl=TTL)

    with_ledger(main)
    assert {row.key_hash for row in OnceResult.objects.all()} >= {"new"}
    assert OnceResult.objects.count() == SpentState.objects.count() == 2
    assert delete_expired(limit=10) == 2
    assert (OnceResult.objects.get().key_hash, SpentState.objects.get().digest) == ("new", "new")


def test_a_claim_starts_with_its_write(django_assert_max_num_queries: Any) -> None:
    ledger = DatabaseIdempotencyStore(LeasingExecutor())
    ledger._next_purge = float("inf")
    with django_assert_max_num_queries(3) as captured:
        ledger._insert(SpentState(digest="a", expires=timezone.now()))
    said = [query["sql"].split()[0] for query in captured.captured_queries]
    assert [word for word in said if word not in ("BEGIN", "SAVEPOINT", "RELEASE", "COMMIT")] == ["INSERT"]
