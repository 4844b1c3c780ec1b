"""Coming back from a page, on another worker than the one that waits."""

import asyncio
import time

import pytest

from mcp_django.models import SpentState
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.threads.executor import LaneExecutor
from mcp_django.runtime.url_elicitation import SitePages, Visit
from tests.runtime.serving import eventually, real_threads, serve
from tests.support.clock import Clock


def worker(executor: LaneExecutor, *secrets: str) -> tuple[SitePages, Feeds]:
    """The pages of one process, which hears of others by the log alone."""
    feeds = Feeds(executor=lambda: executor, layer=lambda: None, keep=lambda: 600)
    return SitePages(secrets or ["key"], executor=lambda: executor, feeds=lambda: feeds), feeds


def visit(id: str) -> Visit:
    return Visit(id, "1", "/page/", time.time() + 60)


@real_threads
def test_the_worker_that_waits_hears_of_it_from_another(clock: Clock) -> None:
    async def main(executor: LaneExecutor) -> None:
        (here, feeds), (there, _) = worker(executor), worker(executor)
        waiting = asyncio.create_task(here.returned("a", within=1e9))
        other = asyncio.create_task(here.returned("b", within=60))
        await eventually(lambda: feeds.here().active)
        assert await executor.run(there.finish, visit("a")) is True
        await clock.advance_until(lambda: waiting.done() and other.done())
        assert await waiting is True
        assert await other is False
        assert await there.returned("a", within=0) is True

    serve(main, queue=8)


@real_threads
def test_of_two_who_end_a_visit_at_once_one_does() -> None:
    async def main(executor: LaneExecutor) -> None:
        pages, _ = worker(executor)
        ended = await asyncio.gather(*(executor.run(pages.finish, visit("a")) for _ in range(8)))
        assert sorted(ended) == [False] * 7 + [True]

    serve(main, lanes=4, queue=8)


@real_threads
def test_whoever_stops_waiting_leaves_nothing_behind() -> None:
    async def main(executor: LaneExecutor) -> None:
        pages, feeds = worker(executor)
        waiting = asyncio.create_task(pages.returned("a", within=60))
        await eventually(lambda: bool(feeds.here()._topics))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not feeds.here()._topics

    serve(main, queue=8)


@pytest.mark.django_db
def test_a_visit_is_remembered_for_longer_than_its_link_is_good() -> None:
    pages, _ = worker(LaneExecutor())
    ends = visit("a")
    pages.finish(ends)
    assert SpentState.objects.get().expires.timestamp() > ends.expires + 3600
