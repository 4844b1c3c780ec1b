"""Replay buffers of call streams: their messages, their readers, and how long they are kept."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_django.runtime.sealing import NameSigner
from mcp_django.runtime.streams import replay_buffer as module
from mcp_django.runtime.streams import replay_store
from mcp_django.runtime.streams.event_ids import EventId, EventIdCodec
from mcp_django.runtime.streams.replay_buffer import ReplayBuffer, ReplayLimits, ReplayReader
from mcp_django.runtime.streams.replay_store import ReplayStore
from tests.support.clock import Clock

LONG = 10.0


def session(pk: int = 1) -> Any:
    return SimpleNamespace(pk=pk)


class BoundedStore(ReplayStore):
    """A store whose buffers all have the same limits."""

    def __init__(self, **bounds: Any) -> None:
        super().__init__(on_empty=lambda: None)
        self.limits = ReplayLimits(**bounds)


def make_store(**bounds: Any) -> BoundedStore:
    return BoundedStore(**bounds)


def open_stream(store: BoundedStore, pk: int = 1) -> tuple[ReplayBuffer, ReplayReader]:
    buffer = store.open_stream(session(pk), store.limits)
    assert buffer.reader is not None
    return buffer, buffer.reader


async def read_texts(reader: ReplayReader) -> list[bytes]:
    return [message for _, message in await reader.read(LONG) or []]


async def test_messages_are_numbered_from_one() -> None:
    buffer, reader = open_stream(make_store())
    for message in (b"a", b"b"):
        buffer.put_nowait(message)
    assert await reader.read(LONG) == [(1, b"a"), (2, b"b")]


async def test_the_newest_reader_replaces_the_one_before() -> None:
    buffer, reader = open_stream(make_store())
    buffer.put_nowait(b"a")
    buffer.put_nowait(b"b")
    newer = buffer.attach(1)
    assert newer is not None
    assert await reader.read(LONG) is None
    assert await read_texts(newer) == [b"b"]


async def test_a_replaced_reader_that_closes_leaves_the_newest_one_open() -> None:
    buffer, reader = open_stream(make_store())
    newer = buffer.attach(0)
    reader.close()
    assert buffer.reader is newer


async def test_a_read_from_an_unknown_position_is_refused(subtests: pytest.Subtests) -> None:
    for after in [-1, 3]:
        with subtests.test(after=after):
            buffer, reader = open_stream(make_store())
            buffer.put_nowait(b"a")
            buffer.put_nowait(b"b")
            assert buffer.attach(after) is None
            assert buffer.reader is reader


async def test_the_oldest_messages_are_dropped() -> None:
    buffer, _ = open_stream(make_store(max_events=2))
    for message in (b"a", b"b", b"c"):
        buffer.put_nowait(message)
    assert buffer.attach(0) is None
    reader = buffer.attach(1)
    assert reader is not None
    assert await read_texts(reader) == [b"b", b"c"]


async def test_messages_beyond_the_byte_limit_are_dropped_but_for_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BUFFER_BYTES", 3)
    buffer, _ = open_stream(make_store())
    for message in (b"aa", b"bb", b"cccc"):
        buffer.put_nowait(message)
    assert (buffer.first_number, buffer.size) == (3, 4)


async def test_a_writer_waits_for_an_open_reader_only() -> None:
    buffer, reader = open_stream(make_store(max_unsent=1))
    buffer.put_nowait(b"a")
    writing = asyncio.ensure_future(buffer.put(b"b"))
    await asyncio.sleep(0)
    assert not writing.done()
    reader.close()
    await writing
    assert buffer.last_number == 2


async def test_a_reader_that_reads_nothing_counts_as_gone(clock: Clock) -> None:
    buffer, reader = open_stream(make_store(max_unsent=1, send_timeout=20.0))
    buffer.put_nowait(b"a")
    putting = asyncio.ensure_future(buffer.put(b"b"))
    await clock.advance(19)
    assert not putting.done()
    await clock.advance(1)
    await putting
    assert buffer.reader is None
    assert await reader.read(LONG) is None
    assert buffer.attach(0) is not None


async def test_a_reader_ends_after_it_has_read_all_waiting_messages() -> None:
    buffer, reader = open_stream(make_store())
    buffer.put_nowait(b"a")
    assert buffer.disconnect_reader(2.0)
    buffer.put_nowait(b"b")
    assert await read_texts(reader) == [b"a"]
    assert (await reader.read(LONG), reader.retry) == (None, 2.0)
    assert not buffer.disconnect_reader(2.0)


async def test_an_unread_buffer_is_kept_until_it_expires(clock: Clock) -> None:
    store = make_store(ttl=100.0)
    buffer, reader = open_stream(store)
    reader.close()
    buffer.finish(b"a")
    await clock.advance(99)
    assert store.find(1, buffer.token) is buffer
    await clock.advance(2)
    assert len(store) == 0


async def test_a_fully_read_buffer_is_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_store, "MAX_KEPT_STREAMS", 2)
    store = make_store()
    fully_read, reader = open_stream(store, 1)
    fully_read.finish(b"a")
    assert await read_texts(reader) == [b"a"]
    assert await reader.read(LONG) is None
    unread = []
    for pk in (2, 3):
        buffer, reader = open_stream(store, pk)
        reader.close()
        buffer.finish(b"b")
        unread.append(buffer)
    assert store.list_kept() == unread
    assert store.find(1, fully_read.token) is None


async def test_an_unread_buffer_does_not_extend_a_fully_read_one(clock: Clock) -> None:
    store = make_store()
    unread, reader = open_stream(store, 1)
    reader.close()
    unread.finish(b"a")
    fully_read, reader = open_stream(store, 2)
    fully_read.finish(b"b")
    assert await read_texts(reader) == [b"b"]
    assert await reader.read(LONG) is None
    assert store.find(2, fully_read.token) is fully_read
    await clock.advance(module.DELIVERED_TTL_SECONDS + 2)
    assert store.find(2, fully_read.token) is None
    assert store.find(1, unread.token) is unread


async def test_a_session_evicts_only_its_own_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_store, "MAX_KEPT_STREAMS_PER_SESSION", 2)
    store = make_store()
    other, reader = open_stream(store, 2)
    reader.close()
    other.finish(b"a")
    for _ in range(5):
        buffer, reader = open_stream(store, 1)
        reader.close()
        buffer.finish(b"a")
    assert len(store) == 3
    assert store.find(2, other.token) is other


async def test_the_buffer_of_an_abandoned_call_is_not_kept() -> None:
    store = make_store()
    buffer, reader = open_stream(store)
    buffer.put_nowait(b"a")
    buffer.abort()
    assert await reader.read(LONG) is None
    assert len(store) == 0


async def test_the_end_of_a_session_ends_its_streams_and_no_others() -> None:
    store = make_store()
    buffer, reader = open_stream(store, 1)
    open_stream(store, 2)
    buffer.put_nowait(b"a")
    store.end_session(1)
    assert await reader.read(LONG) is None
    assert (store.has_session(1), store.has_session(2)) == (False, True)


def test_event_ids_are_valid_in_their_session_only_and_unchanged() -> None:
    ids = EventIdCodec(NameSigner(["secret"], purpose="event"))
    id = ids.create_factory("session", "stream")(7)
    assert ids.parse("session", id) == EventId("stream", 7)
    assert ids.parse("other", id) is None
    assert ids.parse("session", id.replace(b".7.", b".8.")) is None
    assert EventIdCodec(NameSigner(["new", "secret"], purpose="event")).parse("session", id) == EventId("stream", 7)
    assert EventIdCodec(NameSigner(["new"], purpose="event")).parse("session", id) is None
