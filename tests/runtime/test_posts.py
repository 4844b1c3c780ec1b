"""POSTs of HTTP+SSE that reach another worker than the one with the client's stream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.db import OperationalError

from mcp_django.models import StreamEvent
from mcp_django.runtime.events import follower
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.streams import sse_messages
from mcp_django.runtime.streams.sse_messages import DeliveryStatus, SSEMessageRouter
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.ports import Overloaded
from tests.support.clock import Clock

from .channel_layer import FakeLayer
from .serving import eventually, real_threads, serve

NOBODY = frozenset[str]()


class Stream:
    """What messages come in at."""

    def __init__(self, fate: DeliveryStatus = DeliveryStatus.TAKEN) -> None:
        self.fate, self.taken = fate, list[bytes]()
        self.scopes = list[frozenset[str]]()
        self.opened = asyncio.Event()
        self.opened.set()

    async def receive(self, body: bytes, scopes: frozenset[str]) -> DeliveryStatus:
        await self.opened.wait()
        self.taken.append(body)
        self.scopes.append(scopes)
        return self.fate


class Process:
    """One worker, as far as POSTs need it."""

    def __init__(self, executor: LeasingExecutor, layer: FakeLayer | None) -> None:
        self.feeds = EventPublisher(executor=executor, layer=layer, retention_seconds=600.0)
        self.posts = SSEMessageRouter(self.feeds, executor)


def workers(main: Callable[[Process, Process], Awaitable[Any]], layer: FakeLayer | None = None) -> None:
    """Run `main` with the worker that has the streams and another one."""

    async def both(executor: LeasingExecutor) -> None:
        ours, theirs = Process(executor, layer), Process(executor, layer)
        try:
            await main(ours, theirs)
        finally:
            for process in (ours, theirs):
                await process.feeds.get_follower().close()
                process.feeds._threaded_wake_publisher.close()

    serve(both)


async def post_in_vain(
    gets: Process, name: str, clock: Clock, is_reached: Callable[[], object] = lambda: True
) -> DeliveryStatus:
    """Post a message, and once it is in the log let the time pass in which it should be answered."""
    written, publish = asyncio.Event(), gets.feeds.publish

    async def publish_and_note(*drafts: Any) -> Any:
        events = await publish(*drafts)
        written.set()
        return events

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gets.feeds, "publish", publish_and_note)
        posting = asyncio.create_task(gets.posts.post(name, b"{}", NOBODY))
        await written.wait()
    await eventually(is_reached)
    await clock.advance(sse_messages.ANSWER_TIMEOUT_SECONDS)
    return await posting


@real_threads
def test_a_message_comes_to_the_worker_that_has_the_stream(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        assert await gets.posts.post(name, '{"ä": 1}'.encode(), frozenset({"b", "a"})) is DeliveryStatus.TAKEN
        assert (stream.taken, stream.scopes) == (['{"ä": 1}'.encode()], [frozenset({"a", "b"})])

    workers(main, FakeLayer())


@real_threads
def test_without_a_layer_it_comes_a_little_later(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_messages, "ANSWER_TIMEOUT_SECONDS", 1e9)  # so many looks at the log as the threads need

    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        posting = asyncio.create_task(gets.posts.post(await holds.posts.add(stream), b"{}", NOBODY))
        await clock.advance_until(posting.done)
        assert (await posting, stream.taken) == (DeliveryStatus.TAKEN, [b"{}"])

    workers(main)


@real_threads
def test_on_one_worker_nothing_is_written() -> None:
    async def main(holds: Process, _: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        assert await holds.posts.post(name, b"{}", NOBODY) is DeliveryStatus.TAKEN
        holds.posts.remove(name)
        assert await holds.posts.post(name, b"{}", NOBODY) is DeliveryStatus.GONE
        assert stream.taken == [b"{}"]

    workers(main)
    assert not StreamEvent.objects.exists()


@real_threads
@pytest.mark.parametrize("fate", [DeliveryStatus.REFUSED, DeliveryStatus.BUSY])
def test_what_the_stream_says_of_a_message_is_passed_back_and_not_remembered(
    clock: Clock, fate: DeliveryStatus
) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream(fate)
        name = await holds.posts.add(stream)
        assert await gets.posts.post(name, b"{}", NOBODY) is fate
        stream.fate = DeliveryStatus.TAKEN
        assert await gets.posts.post(name, b"{}", NOBODY) is DeliveryStatus.TAKEN

    workers(main, FakeLayer())


@real_threads
def test_a_stream_that_is_gone_is_asked_for_once(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        name = await holds.posts.add(Stream())
        holds.posts.remove(name)
        for _ in range(3):
            assert await gets.posts.post(name, b"{}", NOBODY) is DeliveryStatus.GONE

    workers(main, FakeLayer())
    assert StreamEvent.objects.filter(kind="post").count() == 1


@real_threads
def test_messages_of_one_client_arrive_in_the_order_in_which_it_waited_for_them(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        for n in range(50):
            await (holds if n % 3 else gets).posts.post(name, b"%d" % n, NOBODY)
        assert stream.taken == [b"%d" % n for n in range(50)]

    workers(main, FakeLayer())


@real_threads
def test_many_at_once_are_taken_once_each(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        sent = [gets.posts.post(name, b"%d" % n, NOBODY) for n in range(100)]
        assert set(await asyncio.gather(*sent)) == {DeliveryStatus.TAKEN}
        assert sorted(stream.taken, key=int) == [b"%d" % n for n in range(100)]

    workers(main, FakeLayer())
    assert StreamEvent.objects.filter(kind="post").count() == 100


@real_threads
def test_a_stream_whose_worker_was_killed_is_gone_in_bounded_time(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        name = await holds.posts.add(Stream())
        await holds.feeds.get_follower().close()
        assert await post_in_vain(gets, name, clock) is DeliveryStatus.GONE
        for _ in range(2):
            assert await gets.posts.post(name, b"{}", NOBODY) is DeliveryStatus.GONE

    workers(main)
    # A client that tries again at once neither waits nor writes.
    assert StreamEvent.objects.filter(kind="post").count() == 1


@real_threads
def test_a_worker_that_was_only_slow_does_not_act_on_a_message_that_was_given_up(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        stream.opened.clear()
        name = await holds.posts.add(stream)
        assert await post_in_vain(gets, name, clock, lambda: holds.posts._deliveries) is DeliveryStatus.GONE
        await clock.advance_until(lambda: not holds.posts._deliveries)
        stream.opened.set()
        await asyncio.sleep(0)
        assert stream.taken == []

    workers(main, FakeLayer())


@real_threads
def test_a_worker_that_reads_the_log_late_does_not_act_on_it_either(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse_messages, "MAX_UNCLEARED_BYTES", 1)
    monkeypatch.setattr(follower, "POLL_INTERVAL_SECONDS", 60.0)

    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        assert await post_in_vain(gets, name, clock) is DeliveryStatus.GONE
        await eventually(lambda: not gets.posts._tasks)
        # It hears now of what was there all the time.
        before = holds.feeds.get_follower().position
        holds.feeds.get_follower()._wake_event.set()
        await eventually(lambda: holds.feeds.get_follower().position > before and not holds.posts._tasks)
        assert stream.taken == []

    workers(main)
    assert [e.payload for e in StreamEvent.objects.filter(kind="post")] == ["null"]


@real_threads
def test_a_log_that_is_down_is_said_to_be(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def main(holds: Process, gets: Process) -> None:
        name = await holds.posts.add(Stream())

        async def fail(*_: Any) -> None:
            raise OperationalError("down")

        with monkeypatch.context() as broken:
            broken.setattr(gets.feeds, "publish", fail)
            with pytest.raises(Overloaded, match="try again later"):
                await gets.posts.post(name, b"{}", NOBODY)

    workers(main, FakeLayer())
    assert "Failed to forward a message" in caplog.text


@real_threads
def test_a_log_that_hangs_is_said_to_be_down_and_its_message_is_taken_back(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        stream.opened.clear()
        name, publish = await holds.posts.add(stream), gets.feeds.publish
        begun, opened = asyncio.Event(), asyncio.Event()

        async def hang(*drafts: Any) -> Any:
            begun.set()
            await opened.wait()
            return await publish(*drafts)

        monkeypatch.setattr(gets.feeds, "publish", hang)
        posting = asyncio.create_task(gets.posts.post(name, b"{}", NOBODY))
        await begun.wait()
        await clock.advance(sse_messages.ANSWER_TIMEOUT_SECONDS)
        with pytest.raises(Overloaded, match="try again later"):
            await posting
        opened.set()
        await eventually(lambda: not gets.posts._tasks)
        await clock.advance_until(lambda: not holds.posts._deliveries and not holds.posts._tasks)
        assert stream.taken == []

    workers(main, FakeLayer())


@real_threads
def test_a_stream_is_opened_only_where_messages_can_be_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(holds: Process, _: Process) -> None:
        async def fail(*_: Any, **__: Any) -> None:
            raise OperationalError("down")

        with monkeypatch.context() as broken:
            broken.setattr(holds.feeds.get_follower(), "subscribe", fail)
            with pytest.raises(Overloaded, match="try again later"):
                await holds.posts.add(Stream())
        assert await holds.posts.add(Stream())

    workers(main)


@real_threads
def test_what_was_heard_does_not_stay_in_the_log_by_the_megabyte(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_messages, "ANSWER_TIMEOUT_SECONDS", 1e9)

    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name, body = await holds.posts.add(stream), b'"%b"' % (b"x" * 100_000)
        for _ in range(6):
            posting = asyncio.create_task(gets.posts.post(name, body, NOBODY))
            await clock.advance_until(posting.done)  # what is too large for a wake is looked up
            assert await posting is DeliveryStatus.TAKEN
        await eventually(lambda: not gets.posts._tasks)
        assert stream.taken == [body] * 6

    workers(main, FakeLayer())
    rows = list(StreamEvent.objects.order_by("seq").values_list("seq", "payload"))
    assert sum(len(payload) for _, payload in rows) < 3 * 110_000
    assert [seq for seq, _ in rows] == list(range(rows[0][0], rows[0][0] + len(rows)))


@real_threads
def test_a_client_that_hangs_up_while_its_message_is_on_its_way_leaves_nothing_behind(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        stream.opened.clear()
        posting = asyncio.create_task(gets.posts.post(await holds.posts.add(stream), b"{}", NOBODY))
        await eventually(lambda: bool(holds.posts._deliveries))
        posting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await posting
        stream.opened.set()
        await eventually(lambda: not holds.posts._tasks and not gets.posts._tasks)
        assert not gets.posts._pending
        assert stream.taken == [b"{}"]

    workers(main, FakeLayer())


@real_threads
def test_nothing_is_followed_when_there_is_nothing_to_hear(clock: Clock) -> None:
    async def main(holds: Process, _: Process) -> None:
        first = await holds.posts.add(Stream())
        await clock.advance(3 * sse_messages.CHECK_INTERVAL_SECONDS)
        assert holds.posts._subscription.is_active
        holds.posts.remove(first)
        await clock.advance(sse_messages.CHECK_INTERVAL_SECONDS)
        assert not holds.posts._subscription.is_active
        stream = Stream()
        assert await holds.posts.post(await holds.posts.add(stream), b"{}", NOBODY) is DeliveryStatus.TAKEN
        assert holds.posts._subscription.is_active

    workers(main)
