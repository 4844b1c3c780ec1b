"""The outbox: bounded, in order, with an end that wakes readers and writers."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from mcp_django.server.calls.message_queue import Outbox
from tests.support.clock import Clock
from tests.support.waiting import turns

READ_TIMEOUT_SECONDS = 60.0
"""How long a read waits for a message; the clock of these tests does not get there."""


async def test_waiting_messages_are_read_together_in_order() -> None:
    outbox = Outbox()
    for message in (b"a", b"b"):
        await outbox.put(message)
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"a", b"b"]


async def test_a_reader_waits_for_the_first_message() -> None:
    outbox = Outbox()
    reader = asyncio.ensure_future(outbox.read(READ_TIMEOUT_SECONDS))
    await turns(10)
    assert not reader.done()
    await outbox.put(b"a")
    assert await reader == [b"a"]


async def test_a_read_over_its_timeout_is_an_empty_list(clock: Clock) -> None:
    reader = asyncio.ensure_future(Outbox().read(3))
    await clock.advance(2.999)
    assert not reader.done()
    await clock.advance(0.001)
    assert await reader == []


async def test_a_writer_waits_while_the_queue_is_full() -> None:
    outbox = Outbox(max_messages=2)
    await outbox.put(b"a")
    await outbox.put(b"b")
    writers = [asyncio.ensure_future(outbox.put(message)) for message in (b"c", b"d", b"e")]
    await turns(10)
    assert not any(writer.done() for writer in writers)
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"a", b"b"]
    await turns(10)
    assert [writer.done() for writer in writers].count(True) == 2
    assert len(await outbox.read(READ_TIMEOUT_SECONDS) or ()) == 2
    await asyncio.gather(*writers)
    assert len(await outbox.read(READ_TIMEOUT_SECONDS) or ()) == 1


async def test_a_cancelled_writer_leaves_its_place_to_the_next() -> None:
    outbox = Outbox(max_messages=1)
    await outbox.put(b"a")
    first, second = (asyncio.ensure_future(outbox.put(message)) for message in (b"b", b"c"))
    await turns(10)
    first.cancel()
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"a"]
    await second
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"c"]


async def test_a_message_without_waiting_may_exceed_the_limit() -> None:
    outbox = Outbox(max_messages=1)
    for message in (b"a", b"b"):
        outbox.put_nowait(message)
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"a", b"b"]


async def test_the_last_message_is_read_before_the_end() -> None:
    outbox = Outbox()
    await outbox.put(b"a")
    outbox.finish(b"last")
    assert outbox.is_finished()
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"a", b"last"]
    assert await outbox.read(READ_TIMEOUT_SECONDS) is None
    assert await outbox.read(READ_TIMEOUT_SECONDS) is None


async def test_the_end_wakes_a_waiting_reader() -> None:
    outbox = Outbox()
    reader = asyncio.ensure_future(outbox.read(READ_TIMEOUT_SECONDS))
    await turns(10)
    outbox.finish()
    assert await reader is None


@pytest.mark.parametrize("end", ["finish", "abort"])
async def test_the_end_frees_every_writer_and_drops_its_message(end: str) -> None:
    outbox = Outbox(max_messages=1)
    await outbox.put(b"a")
    writers = [asyncio.ensure_future(outbox.put(b"late")) for _ in range(3)]
    await turns(10)
    getattr(outbox, end)()
    await asyncio.gather(*writers)
    await outbox.put(b"later")
    assert await outbox.read(READ_TIMEOUT_SECONDS) == ([b"a"] if end == "finish" else None)
    assert await outbox.read(READ_TIMEOUT_SECONDS) is None


async def test_an_abort_drops_unread_messages() -> None:
    outbox = Outbox()
    await outbox.put(b"a")
    outbox.abort()
    outbox.finish(b"last")
    assert await outbox.read(READ_TIMEOUT_SECONDS) is None


async def test_the_first_message_opens_the_stream_once() -> None:
    opened: list[int] = []
    outbox = Outbox()
    outbox.on_first_message = lambda: opened.append(1)
    await outbox.put(b"a")
    await outbox.put(b"b")
    assert opened == [1]


async def test_where_there_is_no_stream_messages_are_dropped() -> None:
    opened: list[int] = []
    outbox = Outbox(max_messages=1, interactive=False)
    outbox.on_first_message = lambda: opened.append(1)
    for _ in range(3):
        await outbox.put(b"a")
    outbox.finish(b"last")
    assert opened == []
    assert await outbox.read(READ_TIMEOUT_SECONDS) is None


async def test_a_reader_that_reads_nothing_for_too_long_is_disconnected(clock: Clock) -> None:
    outbox, abandoned = Outbox(max_messages=1, send_timeout=3), asyncio.Event()
    outbox.on_abandoned = abandoned.set
    await outbox.put(b"a")
    writers = [asyncio.ensure_future(outbox.put(message)) for message in (b"b", b"c")]
    await clock.advance(2.999)
    assert not abandoned.is_set()
    await clock.advance(0.001)
    assert abandoned.is_set()
    await asyncio.gather(*writers)
    assert await outbox.read(READ_TIMEOUT_SECONDS) is None


async def test_a_reader_that_is_slow_is_waited_for(clock: Clock) -> None:
    outbox = Outbox(max_messages=1, send_timeout=3)
    outbox.on_abandoned = lambda: pytest.fail("it reads")
    await outbox.put(b"a")
    for last, message in ((b"a", b"b"), (b"b", b"c")):
        writer = asyncio.ensure_future(outbox.put(message))
        await clock.advance(2.999)
        assert await outbox.read(READ_TIMEOUT_SECONDS) == [last]
        await writer


async def test_an_offered_message_never_waits_and_is_dropped_when_the_queue_is_full() -> None:
    outbox = Outbox(max_messages=2)
    for message in (b"1", b"2", b"3"):
        outbox.put_if_room(message)
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"1", b"2"]
    outbox.put_if_room(b"4")
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"4"]


async def test_messages_offered_by_threads_arrive_on_the_loop_up_to_the_limit() -> None:
    outbox, loop = Outbox(max_messages=2), asyncio.get_running_loop()
    scheduled: list[Any] = []
    outbox.loop = Mock(spec=loop, call_soon_threadsafe=lambda *what, context: scheduled.append(what))
    for message in (b"1", b"2", b"3"):
        await asyncio.to_thread(outbox.put_if_room, message)
    assert [message for _, message in scheduled] == [b"1", b"2"]
    outbox.loop = loop
    for arrive, message in scheduled:
        arrive(message)
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"1", b"2"]
    await asyncio.to_thread(outbox.put_if_room, b"4")
    assert await outbox.read(READ_TIMEOUT_SECONDS) == [b"4"]


def test_a_message_offered_to_a_closed_loop_is_dropped() -> None:
    outbox = Outbox()
    outbox.loop = asyncio.new_event_loop()
    outbox.loop.close()
    outbox.put_if_room(b"1")


def test_without_a_loop_nothing_can_be_offered() -> None:
    Outbox().put_if_room(b"1")
