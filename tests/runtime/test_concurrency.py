"""The concurrency limit, counted by several threads at once."""

import random
import threading
import time

from mcp_django.runtime.concurrency import ConcurrencyLimiter


def test_calls_are_counted_by_owner_up_to_the_limit() -> None:
    counts = ConcurrencyLimiter(2)
    assert [counts.acquire(owner) for owner in ("a", "a", "a", "b")] == [True, True, False, True]
    assert len(counts) == 3
    counts.release("a")
    assert counts.acquire("a")
    for owner in ("a", "a", "b"):
        counts.release(owner)
    assert len(counts) == 0
    assert counts._counts == {}


def test_the_calls_of_a_batch_are_counted_all_or_none() -> None:
    counts = ConcurrencyLimiter(5)
    assert counts.acquire("a", 3)
    assert not counts.acquire("a", 3)
    assert len(counts) == 3
    assert counts.acquire("a", 2)
    counts.release("a", 3)
    counts.release("a", 2)
    assert counts._counts == {}


class YieldingDict(dict[str, int]):
    """A dictionary that lets other threads run between read and write."""

    def get(self, key: str, default: int = 0) -> int:  # type: ignore[override]
        found = super().get(key, default)
        time.sleep(0)
        return found

    def __getitem__(self, key: str) -> int:
        found = super().__getitem__(key)
        time.sleep(0)
        return found


def test_threads_never_exceed_the_limit_and_release_all_calls() -> None:
    limit, threads = 3, 8
    counts, gate = ConcurrencyLimiter(limit), threading.Barrier(threads)
    counts._counts = YieldingDict()
    guard, running, most, refused = threading.Lock(), 0, 0, 0

    def work(seed: int) -> None:
        nonlocal running, most, refused
        chance = random.Random(seed)
        gate.wait()
        for _ in range(500):
            calls = chance.randrange(1, 3)
            if not counts.acquire("owner", calls):
                refused += 1
                continue
            with guard:
                running += calls
                most = max(most, running)
            with guard:
                running -= calls
            counts.release("owner", calls)

    crowd = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(60)
    assert most <= limit
    assert refused < threads * 500
    assert counts._counts == {}
