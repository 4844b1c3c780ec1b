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
from tests.runtime.serving import Gate, eventually, real_threads, serve

pytestmark = real_threads
TTL = 3600.0


def run_with_store(main: Any, **options: Any) -> Any:
    async def run(executor: LeasingExecutor) -> Any:
        return await main(DatabaseIdempotencyStore(executor), executor)

    return serve(run, **{"queue": 100, **options})


def test_a_claim_succeeds_once_and_keeps_its_outcome() -> None:
    async def main(store: DatabaseIdempotencyStore, executor: LeasingExecutor) -> None:
        assert await store.claim("a", owner="ada", ttl=TTL)
        elsewhere = DatabaseIdempotencyStore(executor)
        assert not await elsewhere.claim("a", owner="ada", ttl=TTL)
        assert await elsewhere.get_outcome("a") is None
        await store.record_outcome("a", {"value": [1, "x\0y", 2**53 + 1, None, {"é": 0.1}]})
        assert await elsewhere.get_outcome("a") == {"value": [1, "x\0y", 2**53 + 1, None, {"é": 0.1}]}

    run_with_store(main)
    row = OnceResult.objects.get()
    assert (row.owner, row.done_at is not None) == ("ada", True)
    assert row.expires - row.claimed_at > timedelta(seconds=TTL - 5)


def test_a_known_outcome_is_not_replaced() -> None:
    async def main(store: DatabaseIdempotencyStore, _: Any) -> None:
        await store.claim("a", owner="ada", ttl=TTL)
        await store.record_outcome("a", {"error": "No\0 funds"})
        store.mark_unknown("a")
        await eventually(lambda: not store._tasks)
        assert await store.get_outcome("a") == {"error": "No\0 funds"}

    run_with_store(main)


def test_an_abandoned_claim_has_an_unknown_outcome_at_once() -> None:
    async def main(store: DatabaseIdempotencyStore, _: Any) -> None:
        await store.claim("a", owner="ada", ttl=TTL)
        store.mark_unknown("a")
        await eventually(lambda: not store._tasks)
        assert await store.get_outcome("a") == {}

    run_with_store(main)


def test_an_outcome_is_written_although_its_call_is_cancelled(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    record = module._write_outcome

    def slow(*arguments: Any) -> None:
        gate()
        record(*arguments)

    monkeypatch.setattr(module, "_write_outcome", slow)

    async def main(store: DatabaseIdempotencyStore, _: Any) -> None:
        await store.claim("a", owner="ada", ttl=TTL)
        call = asyncio.create_task(store.record_outcome("a", {"value": 1}))
        await gate.until_reached()
        call.cancel()
        await asyncio.wait([call])
        gate.opened.set()
        await eventually(lambda: not store._tasks)
        assert await store.get_outcome("a") == {"value": 1}

    run_with_store(main)


def test_a_missing_row_is_an_unknown_outcome() -> None:
    async def main(store: DatabaseIdempotencyStore, _: Any) -> None:
        assert await store.get_outcome("never claimed") == {}

    run_with_store(main)


@pytest.mark.parametrize("what", ["claim", "spend"])
def test_of_many_concurrent_attempts_one_succeeds(what: str) -> None:
    """Each attempt in a thread with a connection of its own, as in processes of their own."""
    store, start, won = DatabaseIdempotencyStore(LeasingExecutor()), threading.Barrier(8), []

    def attempt(number: int) -> None:
        soon = timezone.now() + timedelta(hours=1)
        claim, use = OnceResult(key_hash="a", owner=str(number), expires=soon), SpentState(digest="a", expires=soon)
        try:
            start.wait()
            if store._insert(claim if what == "claim" else use):
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


def test_a_state_is_consumed_once() -> None:
    async def main(store: DatabaseIdempotencyStore, _: Any) -> None:
        tries = await asyncio.gather(*(store.consume("a", ttl=TTL) for _ in range(5)))
        assert sorted(tries) == [False] * 4 + [True]
        assert await store.consume("b", ttl=TTL)

    run_with_store(main)


def test_expired_rows_are_purged_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PURGED_ROWS", 2)

    async def main(store: DatabaseIdempotencyStore, _: Any) -> None:
        for number in range(3):
            await store.claim(f"old {number}", owner="ada", ttl=-1)
            await store.consume(f"old {number}", ttl=-1)
        await store.claim("new", owner="ada", ttl=TTL)
        store._next_purge = 0.0
        await store.consume("new", ttl=TTL)

    run_with_store(main)
    assert {row.key_hash for row in OnceResult.objects.all()} >= {"new"}
    assert OnceResult.objects.count() == SpentState.objects.count() == 2
    assert delete_expired(limit=10) == 2
    assert (OnceResult.objects.get().key_hash, SpentState.objects.get().digest) == ("new", "new")


def test_a_claim_starts_with_its_write(django_assert_max_num_queries: Any) -> None:
    store = DatabaseIdempotencyStore(LeasingExecutor())
    store._next_purge = float("inf")
    with django_assert_max_num_queries(3) as captured:
        store._insert(SpentState(digest="a", expires=timezone.now()))
    commands = [query["sql"].split()[0] for query in captured.captured_queries]
    assert [command for command in commands if command not in ("BEGIN", "SAVEPOINT", "RELEASE", "COMMIT")] == ["INSERT"]
