"""What the stream of a call remembers, for whom it waits, and how long it is kept."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_django.runtime.sealing import Stamp
from mcp_django.runtime.streams import replay_buffer as module
from mcp_django.runtime.streams import replay_store
from mcp_django.runtime.streams.event_ids import EventId, EventIds
from mcp_django.runtime.streams.replay_buffer import Bounds, Reader, Ring
from mcp_django.runtime.streams.replay_store import Rings
from tests.support.clock import Clock

LONG = 10.0


def session(pk: int = 1) -> Any:
    return SimpleNamespace(pk=pk)


def make(**bounds: Any) -> Rings:
    return Rings(lambda: Bounds(**bounds), on_empty=lambda: None)


def opened(rings: Rings, pk: int = 1) -> tuple[Ring, Reader]:
    ring = rings.open(session(pk))
    assert ring.reader is not None
    return ring, ring.reader


async def texts(reader: Reader) -> list[bytes]:
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
    reader.leave()
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
    ring, _ = opened(make(events=2))
    for message in (b"a", b"b", b"c"):
        ring.put_nowait(message)
    assert ring.attach(0) is None
    reader = ring.attach(1)
    assert reader is not None
    assert await texts(reader) == [b"b", b"c"]


async def test_many_bytes_are_forgotten_but_for_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RING_BYTES", 3)
    ring, _ = opened(make())
    for message in (b"aa", b"bb", b"cccc"):
        ring.put_nowait(message)
    assert (ring.first, ring.size) == (3, 4)


async def test_a_writer_waits_for_a_reader_and_for_nobody_who_left() -> None:
    ring, reader = opened(make(unsent=1))
    ring.put_nowait(b"a")
    writing = asyncio.ensure_future(ring.put(b"b"))
    await asyncio.sleep(0)
    assert not writing.done()
    reader.leave()
    await writing
    assert ring.last == 2


async def test_a_reader_that_takes_nothing_counts_as_gone(clock: Clock) -> None:
    ring, reader = opened(make(unsent=1, patience=20.0))
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
    assert ring.release(2.0)
    ring.put_nowait(b"b")
    assert await texts(reader) == [b"a"]
    assert (await reader.read(LONG), reader.retry) == (None, 2.0)
    assert not ring.release(2.0)


async def test_what_was_not_heard_is_kept_until_its_time_is_over(clock: Clock) -> None:
    rings = make(ttl=100.0)
    ring, reader = opened(rings)
    reader.leave()
    ring.finish(b"a")
    await clock.advance(99)
    assert rings.find(1, ring.token) is ring
    await clock.advance(2)
    assert len(rings) == 0


async def test_what_was_heard_to_its_end_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_store, "KEPT", 2)
    rings = make()
    heard, reader = opened(rings, 1)
    heard.finish(b"a")
    assert await texts(reader) == [b"a"]
    assert await reader.read(LONG) is None
    unheard = []
    for pk in (2, 3):
        ring, reader = opened(rings, pk)
        reader.leave()
        ring.finish(b"b")
        unheard.append(ring)
    assert rings.unheard() == unheard
    assert rings.find(1, heard.token) is None


async def test_what_was_heard_is_kept_no_longer_because_something_else_was_not(clock: Clock) -> None:
    rings = make()
    unheard, reader = opened(rings, 1)
    reader.leave()
    unheard.finish(b"a")
    heard, reader = opened(rings, 2)
    heard.finish(b"b")
    assert await texts(reader) == [b"b"]
    assert await reader.read(LONG) is None
    assert rings.find(2, heard.token) is heard
    await clock.advance(module.HEARD_TTL + 2)
    assert rings.find(2, heard.token) is None
    assert rings.find(1, unheard.token) is unheard


async def test_a_session_pushes_out_nothing_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_store, "KEPT_EACH", 2)
    rings = make()
    other, reader = opened(rings, 2)
    reader.leave()
    other.finish(b"a")
    for _ in range(5):
        ring, reader = opened(rings, 1)
        reader.leave()
        ring.finish(b"a")
    assert len(rings) == 3
    assert rings.find(2, other.token) is other


async def test_a_call_that_was_given_up_is_not_kept() -> None:
    rings = make()
    ring, reader = opened(rings)
    ring.put_nowait(b"a")
    ring.cut()
    assert await reader.read(LONG) is None
    assert len(rings) == 0


async def test_the_end_of_a_session_ends_its_streams_and_no_others() -> None:
    rings = make()
    ring, reader = opened(rings, 1)
    opened(rings, 2)
    ring.put_nowait(b"a")
    rings.end(1)
    assert await reader.read(LONG) is None
    assert (rings.has(1), rings.has(2)) == (False, True)


def test_ids_are_read_in_their_session_only_and_as_they_were_made() -> None:
    ids = EventIds(Stamp(["secret"], purpose="event"))
    id = ids.of("session", "stream")(7)
    assert ids.read("session", id) == EventId("stream", 7)
    assert ids.read("other", id) is None
    assert ids.read("session", id.replace(b".7.", b".8.")) is None
    assert EventIds(Stamp(["new", "secret"], purpose="event")).read("session", id) == EventId("stream", 7)
    assert EventIds(Stamp(["new"], purpose="event")).read("session", id) is None
