"""What the stream of a call remembers, for whom it waits, and how long it is kept."""

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


def make(**bounds: Any) -> BoundedStore:
    return BoundedStore(**bounds)


def opened(rings: BoundedStore, pk: int = 1) -> tuple[ReplayBuffer, ReplayReader]:
    ring = rings.open_stream(session(pk), rings.limits)
    assert ring.reader is not None
    return ring, ring.reader


async def texts(reader: ReplayReader) -> list[bytes]:
    return [message for _, message in await reader.read(LONG) or []]


async def test_messages_are_numbered_from_one() -> None:
    ring, reader = opened(make())
    for message in (b"a", b"b"):
        ring.put_nowait(message)
    assert await reader.read(LONG) == [(1, b"a"), (2, b"b")]


async def test_the_newest_reader_replaces_the_one_before() -> None:
    ring, reader = opened(make())
    ring.put_nowait(b"a")
    ring.put_nowait(b"b")
    newer = ring.attach(1)
    assert newer is not None
    assert await reader.read(LONG) is None
    assert await texts(newer) == [b"b"]


async def test_one_that_was_replaced_takes_nobody_along_when_it_leaves() -> None:
    ring, reader = opened(make())
    newer = ring.attach(0)
    reader.close()
    assert ring.reader is newer


async def test_nobody_reads_from_where_there_is_nothing(subtests: pytest.Subtests) -> None:
    for after in [-1, 3]:
        with subtests.test(after=after):
            ring, reader = opened(make())
            ring.put_nowait(b"a")
            ring.put_nowait(b"b")
            assert ring.attach(after) is None
            assert ring.reader is reader


async def test_the_oldest_messages_are_forgotten() -> None:
    ring, _ = opened(make(max_events=2))
    for message in (b"a", b"b", b"c"):
        ring.put_nowait(message)
    assert ring.attach(0) is None
    reader = ring.attach(1)
    assert reader is not None
    assert await texts(reader) == [b"b", b"c"]


async def test_many_bytes_are_forgotten_but_for_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BUFFER_BYTES", 3)
    ring, _ = opened(make())
    for message in (b"aa", b"bb", b"cccc"):
        ring.put_nowait(message)
    assert (ring.first_number, ring.size) == (3, 4)


async def test_a_writer_waits_for_a_reader_and_for_nobody_who_left() -> None:
    ring, reader = opened(make(max_unsent=1))
    ring.put_nowait(b"a")
    writing = asyncio.ensure_future(ring.put(b"b"))
    await asyncio.sleep(0)
    assert not writing.done()
    reader.close()
    await writing
    assert ring.last_number == 2


async def test_a_reader_that_takes_nothing_counts_as_gone(clock: Clock) -> None:
    ring, reader = opened(make(max_unsent=1, send_timeout=20.0))
    ring.put_nowait(b"a")
    putting = asyncio.ensure_future(ring.put(b"b"))
    await clock.advance(19)
    assert not putting.done()
    await clock.advance(1)
    await putting
    assert ring.reader is None
    assert await reader.read(LONG) is None
    assert ring.attach(0) is not None


async def test_a_reader_is_sent_away_when_it_has_read_what_waits() -> None:
    ring, reader = opened(make())
    ring.put_nowait(b"a")
    assert ring.disconnect_reader(2.0)
    ring.put_nowait(b"b")
    assert await texts(reader) == [b"a"]
    assert (await reader.read(LONG), reader.retry) == (None, 2.0)
    assert not ring.disconnect_reader(2.0)


async def test_what_was_not_heard_is_kept_until_its_time_is_over(clock: Clock) -> None:
    rings = make(ttl=100.0)
    ring, reader = opened(rings)
    reader.close()
    ring.finish(b"a")
    await clock.advance(99)
    assert rings.find(1, ring.token) is ring
    await clock.advance(2)
    assert len(rings) == 0


async def test_what_was_heard_to_its_end_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_store, "MAX_KEPT_STREAMS", 2)
    rings = make()
    heard, reader = opened(rings, 1)
    heard.finish(b"a")
    assert await texts(reader) == [b"a"]
    assert await reader.read(LONG) is None
    unheard = []
    for pk in (2, 3):
        ring, reader = opened(rings, pk)
        reader.close()
        ring.finish(b"b")
        unheard.append(ring)
    assert rings.list_kept() == unheard
    assert rings.find(1, heard.token) is None


async def test_what_was_heard_is_kept_no_longer_because_something_else_was_not(clock: Clock) -> None:
    rings = make()
    unheard, reader = opened(rings, 1)
    reader.close()
    unheard.finish(b"a")
    heard, reader = opened(rings, 2)
    heard.finish(b"b")
    assert await texts(reader) == [b"b"]
    assert await reader.read(LONG) is None
    assert rings.find(2, heard.token) is heard
    await clock.advance(module.DELIVERED_TTL_SECONDS + 2)
    assert rings.find(2, heard.token) is None
    assert rings.find(1, unheard.token) is unheard


async def test_a_session_pushes_out_nothing_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_store, "MAX_KEPT_STREAMS_PER_SESSION", 2)
    rings = make()
    other, reader = opened(rings, 2)
    reader.close()
    other.finish(b"a")
    for _ in range(5):
        ring, reader = opened(rings, 1)
        reader.close()
        ring.finish(b"a")
    assert len(rings) == 3
    assert rings.find(2, other.token) is other


async def test_a_call_that_was_given_up_is_not_kept() -> None:
    rings = make()
    ring, reader = opened(rings)
    ring.put_nowait(b"a")
    ring.abort()
    assert await reader.read(LONG) is None
    assert len(rings) == 0


async def test_the_end_of_a_session_ends_its_streams_and_no_others() -> None:
    rings = make()
    ring, reader = opened(rings, 1)
    opened(rings, 2)
    ring.put_nowait(b"a")
    rings.end_session(1)
    assert await reader.read(LONG) is None
    assert (rings.has_session(1), rings.has_session(2)) == (False, True)


def test_ids_are_read_in_their_session_only_and_as_they_were_made() -> None:
    ids = EventIdCodec(NameSigner(["secret"], purpose="event"))
    id = ids.create_factory("session", "stream")(7)
    assert ids.parse("session", id) == EventId("stream", 7)
    assert ids.parse("other", id) is None
    assert ids.parse("session", id.replace(b".7.", b".8.")) is None
    assert EventIdCodec(NameSigner(["new", "secret"], purpose="event")).parse("session", id) == EventId("stream", 7)
    assert EventIdCodec(NameSigner(["new"], purpose="event")).parse("session", id) is None
