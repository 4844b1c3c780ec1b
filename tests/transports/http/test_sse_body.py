"""The body of a streamed answer."""

import asyncio
from typing import Any

import pytest

from mcp_django.protocol import sse
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.transports.http.sse_body import CallSource, SSEBody
from tests.support.clock import Clock
from tests.support.sse_decoder import Decoder

LONG = 10.0


class Call:
    def __init__(self) -> None:
        self.outbox = Outbox()


class FakeCallTask:
    """As much of a flight as a stream looks at."""

    def __init__(self) -> None:
        self.call, self.left, self.is_answered = Call(), 0, False

    def on_disconnect(self) -> None:
        self.left += 1
        self.call.outbox.abort()


def stream(keep_alive: float = LONG) -> tuple[Any, SSEBody]:
    flight: Any = FakeCallTask()
    return flight, SSEBody(CallSource(flight), keep_alive)


async def test_messages_become_events_and_the_end_ends_the_stream() -> None:
    flight, events = stream()
    outbox = flight.call.outbox
    outbox.put_nowait(b'{"a":1}')
    outbox.put_nowait(b'{"b":2}')
    first = await anext(events)
    outbox.finish(b'{"c":3}')
    rest = [chunk async for chunk in events]
    found = Decoder().feed(b"".join([first, *rest]))
    assert [event.data for event in found] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


async def test_a_silent_stream_sends_a_comment(clock: Clock) -> None:
    _, events = stream(keep_alive=15)
    reading = asyncio.ensure_future(anext(events))
    await clock.advance(14)
    assert not reading.done()
    await clock.advance(1)
    assert await reading == sse.KEEP_ALIVE


async def test_a_cancelled_reader_counts_as_disconnected() -> None:
    flight, events = stream()
    reading = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert flight.left == 1


async def test_closing_ends_the_stream_from_any_thread() -> None:
    flight, events = stream()
    reading = asyncio.ensure_future(anext(events, None))
    await asyncio.to_thread(events.close)
    assert await reading is None
    assert flight.left == 1


async def test_a_stream_that_was_neither_read_nor_closed_counts_as_disconnected() -> None:
    """Django drops the response of a client that leaves while middleware still has it."""
    flight, events = stream()
    del events
    await asyncio.sleep(0)
    assert flight.left == 1


def test_a_stream_may_outlive_its_loop() -> None:
    async def main() -> SSEBody:
        return stream()[1]

    asyncio.run(main()).close()
