"""The return from a page, on another worker than the one that waits."""

import asyncio
import time
from typing import Any

import pytest
from django.db import OperationalError

from mcp_django.models import SpentState
from mcp_django.runtime.events.event_log import EventLog
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.runtime.url_elicitation import PageVisit, SealedElicitationPages
from tests.runtime.serving import eventually, real_threads, serve
from tests.support.clock import Clock


def worker(executor: LeasingExecutor, *secrets: str) -> tuple[SealedElicitationPages, EventPublisher]:
    """Build the pages of one process, which learns of others from the log alone."""
    feeds = EventPublisher(executor=executor, layer=None, retention_seconds=600)
    return SealedElicitationPages(secrets or ["key"], executor=executor, publisher=feeds), feeds


def visit(id: str) -> PageVisit:
    return PageVisit(id, "1", "/page/", time.time() + 60)


@real_threads
def test_a_return_on_another_worker_ends_the_wait(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        (here, feeds), (there, _) = worker(executor), worker(executor)
        waiting = asyncio.create_task(here.wait_for_return("a", timeout=1e9))
        other = asyncio.create_task(here.wait_for_return("b", timeout=60))
        await eventually(lambda: feeds.get_follower().is_active)
        assert await executor.run(there.mark_finished, visit("a")) is True
        await clock.advance_until(lambda: waiting.done() and other.done())
        assert await waiting is True
        assert await other is False
        assert await there.wait_for_return("a", timeout=0) is True

    serve(main, queue=8)


@real_threads
def test_of_concurrent_ends_of_a_visit_one_succeeds() -> None:
    async def main(executor: LeasingExecutor) -> None:
        pages, _ = worker(executor)
        ended = await asyncio.gather(*(executor.run(pages.mark_finished, visit("a")) for _ in range(8)))
        assert sorted(ended) == [False] * 7 + [True]

    serve(main, threads=4, queue=8)


@real_threads
def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async def main(executor: LeasingExecutor) -> None:
        pages, feeds = worker(executor)
        waiting = asyncio.create_task(pages.wait_for_return("a", timeout=60))
        await eventually(lambda: bool(feeds.get_follower()._topics))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not feeds.get_follower()._topics

    serve(main, queue=8)


@pytest.mark.django_db(transaction=True)
def test_a_return_that_cannot_be_published_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the page would be finished, and the call would wait until its timeout."""
    pages, _ = worker(LeasingExecutor())
    with monkeypatch.context() as patch:
        patch.setattr(EventLog, "append", fail_to_append)
        with pytest.raises(OperationalError):
            pages.mark_finished(visit("a"))
    assert not pages.is_finished("a")
    assert pages.mark_finished(visit("a")) is True


def fail_to_append(self: EventLog, drafts: Any) -> Any:
    raise OperationalError("server closed the connection")


@pytest.mark.django_db
def test_a_visit_is_kept_longer_than_its_link_is_valid() -> None:
    pages, _ = worker(LeasingExecutor())
    ends = visit("a")
    pages.mark_finished(ends)
    assert SpentState.objects.get().expires.timestamp() > ends.expires + 3600
