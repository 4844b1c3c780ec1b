"""Rates, counted in a cache: limits, and the time to wait beyond them."""

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from django.core.cache import caches

from mcp_django.auth.principal import run_in_thread
from mcp_django.auth.throttling import RateCounter
from mcp_django.server.primitives.base import Rate

LOCAL = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}


class Clock:
    """A clock that advances only when it is moved."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """At the beginning of a window, of a minute and of ten seconds."""
    return Clock(60 * 20_000)


@pytest.fixture(autouse=True)
def _an_empty_cache(settings: Any) -> Any:
    settings.CACHES = {
        "default": {**LOCAL, "LOCATION": "rates"},
        "nothing": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        "down": {"BACKEND": "tests.auth.test_throttling.Down"},
    }
    caches["default"].clear()


class Down:
    """A cache whose server is not there."""

    def __init__(self, *args: Any) -> None:
        pass

    def close(self) -> None:
        """Nothing was open."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionError("Connection refused")


RATES: list[tuple[str, int, int]] = [
    ("10/s", 10, 1),
    ("10/m", 10, 60),
    ("10/min", 10, 60),
    ("1/minute", 1, 60),
    ("100/h", 100, 3600),
    ("1000/day", 1000, 86400),
    ("5/15m", 5, 900),
    (" 5/m ", 5, 60),
]


class TestReading:
    def test_a_rate_is_a_number_and_a_time(self, subtests: pytest.Subtests) -> None:
        for text, count, seconds in RATES:
            with subtests.test(text=text):
                assert Rate.parse(text) == (count, seconds)

    def test_other_values_are_refused(self, subtests: pytest.Subtests) -> None:
        for text in ("", "10", "/m", "0/m", "-1/m", "1.5/m", "10/y", "10/0m", "10 / m", "10/mm", None, 5):
            with subtests.test(text=text), pytest.raises(ValueError, match="Invalid rate"):
                Rate.parse(text)

    def test_a_rate_is_formatted_as_it_is_parsed(self, subtests: pytest.Subtests) -> None:
        for text in ("10/s", "5/15m", "7/2h", "9/3d", "1/90s"):
            with subtests.test(text=text):
                assert str(Rate.parse(text)) == text


class TestCounting:
    def test_calls_up_to_the_rate_are_allowed(self, clock: Clock) -> None:
        counter = RateCounter(clock=clock)
        found = [counter.count("x", "me", Rate(3, 60)) for _ in range(4)]
        assert found[:3] == [None, None, None]
        assert found[3] is not None

    def test_a_caller_that_waits_for_retry_after_is_served(self, clock: Clock) -> None:
        counter, rate = RateCounter(clock=clock), Rate(3, 60)
        for second in range(300):
            wait = counter.count("x", "me", rate)
            if wait is not None:
                clock.now += wait - 0.5
                assert wait <= 1 or counter.count("x", "me", rate) is not None
                clock.now += 0.5 + 1e-6
                assert counter.count("x", "me", rate) is None
            clock.now += second % 7

    def test_no_window_holds_more_than_the_rate_and_half_as_many(self, subtests: pytest.Subtests) -> None:
        for start in (0, 31, 59):
            with subtests.test(start=start):
                caches["default"].clear()
                clock = Clock(60 * 20_000 + start)
                counter, rate = RateCounter(clock=clock), Rate(20, 60)
                served = []
                for _ in range(600):
                    if counter.count("x", "me", rate) is None:
                        served.append(clock.now)
                    clock.now += 0.5
                most = max(sum(1 for other in served if at <= other < at + 60) for at in served)
                assert most <= 30  # a fixed window would let forty through around its edge
                assert len(served) >= 90

    def test_refused_calls_are_not_counted(self, clock: Clock) -> None:
        counter, rate = RateCounter(clock=clock), Rate(2, 10)
        assert [counter.count("x", "me", rate) is None for _ in range(50)].count(True) == 2
        clock.now += 20
        assert counter.count("x", "me", rate) is None

    def test_names_and_keys_are_counted_separately(self, clock: Clock) -> None:
        counter, rate = RateCounter(clock=clock), Rate(1, 60)
        assert counter.count("x", "me", rate) is None
        assert counter.count("x", "you", rate) is None
        assert counter.count("y", "me", rate) is None
        assert counter.count("x", "me", rate) is not None

    def test_a_check_without_a_count_counts_nothing(self, clock: Clock) -> None:
        counter, rate = RateCounter(clock=clock), Rate(1, 60)
        assert [counter.count("x", "me", rate, dry_run=True) for _ in range(3)] == [None] * 3
        assert counter.count("x", "me", rate) is None
        assert counter.count("x", "me", rate, dry_run=True) == counter.count("x", "me", rate) is not None

    def test_a_cost_of_several_counts_each(self, clock: Clock) -> None:
        counter, rate = RateCounter(clock=clock), Rate(10, 60)
        assert counter.count("x", "me", rate, 8) is None
        assert counter.count("x", "me", rate, 3) is not None
        assert counter.count("x", "me", rate, 2) is None

    def test_a_cost_over_the_rate_is_always_refused(self, clock: Clock) -> None:
        assert RateCounter(clock=clock).count("x", "me", Rate(2, 60), 3) is not None

    def test_concurrent_threads_do_not_exceed_the_rate(self, clock: Clock) -> None:
        counter = RateCounter(clock=clock)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: counter.count("x", "me", Rate(25, 60)), range(200)))
        assert found.count(None) == 25

    def test_a_key_may_be_any_text(self, clock: Clock, subtests: pytest.Subtests) -> None:
        for key in ("", "ключ" * 200, "a b\nc", "\ud800", "\0"):
            with subtests.test(key=key):
                counter = RateCounter(clock=clock)
                assert counter.count("x", key, Rate(1, 60)) is None
                assert counter.count("x", key, Rate(1, 60)) is not None

    async def test_async_code_counts(self, clock: Clock) -> None:
        counter = RateCounter(clock=clock)
        count = partial(counter.count, "x", "me", Rate(1, 60))
        assert await counter.run(count, run_in_thread) is None
        assert await counter.run(partial(count, dry_run=True), run_in_thread) is not None
        assert await counter.run(count, run_in_thread) is not None


class TestWithoutACache:
    def test_everything_is_allowed_and_logged_once(self, caplog: Any) -> None:
        for alias in ("down", "nothing"):
            caplog.clear()
            counter = RateCounter(alias)
            with caplog.at_level(logging.ERROR, "mcp_django.auth"):
                assert [counter.count("x", "me", Rate(1, 60)) for _ in range(3)] == [None] * 3
            assert len(caplog.records) == 1
            assert alias in caplog.text

    async def test_an_operation_that_must_be_counted_is_refused(self) -> None:
        for alias in ("down", "nothing"):
            assert RateCounter(alias).count("x", "me", Rate(1, 3600), fail_closed=True) == 60
            count = partial(RateCounter(alias).count, "x", "me", Rate(1, 60))
            assert await RateCounter(alias).run(count, run_in_thread) is None
            assert await RateCounter(alias).run(partial(count, fail_closed=True), run_in_thread) == 60
