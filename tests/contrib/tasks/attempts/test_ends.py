"""Ends of attempts: written together, each by itself if one is refused, and again after the database failed."""

import asyncio
from typing import Any

import pytest
from django.db import DataError, OperationalError

from mcp_django.contrib.tasks.attempts import ends
from mcp_django.contrib.tasks.attempts.ends import store_end
from mcp_django.contrib.tasks.models import Task, TaskStatus
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import store
from tests.support.clock import Clock


class Rows:
    """A fake of the rows, which fails a given number of times."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.failures: list[Exception] = []
        self.refused: set[str] = set()
        self.gate = asyncio.Event()

    async def write(self, fn: Any, given: list[store.TaskEnd]) -> None:
        ids = [end.task.pk for end in given]
        self.batches.append(ids)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop()
        if self.refused.intersection(ids):
            raise DataError("refused")


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    rows = Rows()
    monkeypatch.setattr(store, "run_on_rows", rows.write)
    return rows


def make_end(id: str) -> store.TaskEnd:
    return store.TaskEnd(Task(id=id), TaskStatus.COMPLETED, {})


def start_ends(*ids: str) -> list["asyncio.Task[None]"]:
    return [asyncio.ensure_future(store_end(make_end(id))) for id in ids]


async def test_ends_that_arrive_during_a_write_are_written_together(rows: Rows) -> None:
    first = start_ends("a")
    while not rows.batches:
        await asyncio.sleep(0)
    rest = start_ends("b", "c", "d")
    await asyncio.sleep(0)
    rest[2].cancel()
    await asyncio.sleep(0)
    rows.gate.set()
    await asyncio.gather(*first, *rest, return_exceptions=True)
    assert rows.batches == [["a"], ["b", "c", "d"]]


async def test_a_refused_row_does_not_prevent_other_writes(rows: Rows) -> None:
    rows.refused.add("b")
    rows.gate.set()
    results = await asyncio.gather(*start_ends("a", "b", "c"), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), DataError, type(None)]


async def test_a_write_is_repeated_until_the_database_answers(rows: Rows, clock: Clock) -> None:
    """Even after the lease: no process takes a row from its worker soon after an outage."""
    rows.gate.set()
    failures = round(2 * get_settings().lease)
    rows.failures = [OperationalError("down")] * failures
    (ended,) = start_ends("a")
    for _ in range(failures):
        assert not ended.done()
        await clock.advance(ends.RETRY_SECONDS)
    await ended
    assert rows.batches == [["a"]] * (failures + 1)


async def test_a_refused_write_is_not_repeated(rows: Rows) -> None:
    rows.gate.set()
    rows.failures = [DataError("refused")]
    (ended,) = start_ends("a")
    with pytest.raises(DataError):
        await ended
    assert rows.batches == [["a"]]
