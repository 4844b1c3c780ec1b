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
from tests.runtime.channel_layer import FakeLayer
from tests.runtime.serving import eventually, real_threads, serve
from tests.support.clock import Clock

NO_SCOPES = frozenset[str]()


class Stream:
    """Receives messages."""

    def __init__(self, status: DeliveryStatus = DeliveryStatus.TAKEN) -> None:
        self.status, self.taken = status, list[bytes]()
        self.scopes = list[frozenset[str]]()
        self.opened = asyncio.Event()
        self.opened.set()

    async def receive(self, body: bytes, scopes: frozenset[str]) -> DeliveryStatus:
        await self.opened.wait()
        self.taken.append(body)
        self.scopes.append(scopes)
        return self.status


class Process:
    """One worker, with the parts that POSTs need."""

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
    """Post a message, and after it is in the log let the time for its answer pass."""
    written, publish = asyncio.Event(), gets.feeds.publish

    async def publish_and_note(*drafts: Any) -> Any:
        events = await publish(*drafts)
        written.set()
        return events

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gets.feeds, "publish", publish_and_note)
        posting = asyncio.create_task(gets.posts.post(name, b"{}", NO_SCOPES))
        await written.wait()
    await eventually(is_reached)
    await clock.advance(sse_messages.ANSWER_TIMEOUT_SECONDS)
    return await posting


@real_threads
def test_a_message_reaches_the_worker_that_has_the_stream(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        assert await gets.posts.post(name, '{"ä": 1}'.encode(), frozenset({"b", "a"})) is DeliveryStatus.TAKEN
        assert (stream.taken, stream.scopes) == (['{"ä": 1}'.encode()], [frozenset({"a", "b"})])

    workers(main, FakeLayer())


@real_threads
def test_without_a_layer_it_arrives_a_little_later(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_messages, "ANSWER_TIMEOUT_SECONDS", 1e9)  # as many polls of the log as the threads need

    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        posting = asyncio.create_task(gets.posts.post(await holds.posts.add(stream), b"{}", NO_SCOPES))
        await clock.advance_until(posting.done)
        assert (await posting, stream.taken) == (DeliveryStatus.TAKEN, [b"{}"])

    workers(main)


@real_threads
def test_on_one_worker_nothing_is_written() -> None:
    async def main(holds: Process, _: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        assert await holds.posts.post(name, b"{}", NO_SCOPES) is DeliveryStatus.TAKEN
        holds.posts.remove(name)
        assert await holds.posts.post(name, b"{}", NO_SCOPES) is DeliveryStatus.GONE
        assert stream.taken == [b"{}"]

    workers(main)
    assert not StreamEvent.objects.exists()


@real_threads
@pytest.mark.parametrize("status", [DeliveryStatus.REFUSED, DeliveryStatus.BUSY])
def test_the_delivery_status_is_returned_and_not_cached(clock: Clock, status: DeliveryStatus) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream(status)
        name = await holds.posts.add(stream)
        assert await gets.posts.post(name, b"{}", NO_SCOPES) is status
        stream.status = DeliveryStatus.TAKEN
        assert await gets.posts.post(name, b"{}", NO_SCOPES) is DeliveryStatus.TAKEN

    workers(main, FakeLayer())


@real_threads
def test_a_closed_stream_is_looked_up_once(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        name = await holds.posts.add(Stream())
        holds.posts.remove(name)
        for _ in range(3):
            assert await gets.posts.post(name, b"{}", NO_SCOPES) is DeliveryStatus.GONE

    workers(main, FakeLayer())
    assert StreamEvent.objects.filter(kind="post").count() == 1


@real_threads
def test_messages_of_one_client_arrive_in_order(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        for n in range(50):
            await (holds if n % 3 else gets).posts.post(name, b"%d" % n, NO_SCOPES)
        assert stream.taken == [b"%d" % n for n in range(50)]

    workers(main, FakeLayer())


@real_threads
def test_many_concurrent_messages_are_received_once_each(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        sent = [gets.posts.post(name, b"%d" % n, NO_SCOPES) for n in range(100)]
        assert set(await asyncio.gather(*sent)) == {DeliveryStatus.TAKEN}
        assert sorted(stream.taken, key=int) == [b"%d" % n for n in range(100)]

    workers(main, FakeLayer())
    assert StreamEvent.objects.filter(kind="post").count() == 100


@real_threads
def test_the_stream_of_a_killed_worker_is_gone_in_bounded_time(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        name = await holds.posts.add(Stream())
        await holds.feeds.get_follower().close()
        assert await post_in_vain(gets, name, clock) is DeliveryStatus.GONE
        for _ in range(2):
            assert await gets.posts.post(name, b"{}", NO_SCOPES) is DeliveryStatus.GONE

    workers(main)
    # A client that tries again at once neither waits nor writes.
    assert StreamEvent.objects.filter(kind="post").count() == 1


@real_threads
def test_a_slow_worker_does_not_act_on_an_abandoned_message(clock: Clock) -> None:
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
def test_a_worker_that_reads_the_log_late_does_not_act_on_an_abandoned_message(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse_messages, "MAX_UNCLEARED_BYTES", 1)
    monkeypatch.setattr(follower, "POLL_INTERVAL_SECONDS", 60.0)

    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name = await holds.posts.add(stream)
        assert await post_in_vain(gets, name, clock) is DeliveryStatus.GONE
        await eventually(lambda: not gets.posts._tasks)
        # It receives only now an event that was in the log before.
        before = holds.feeds.get_follower().position
        holds.feeds.get_follower()._wake_event.set()
        await eventually(lambda: holds.feeds.get_follower().position > before and not holds.posts._tasks)
        assert stream.taken == []

    workers(main)
    assert [e.payload for e in StreamEvent.objects.filter(kind="post")] == ["null"]


@real_threads
def test_a_broken_log_is_an_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def main(holds: Process, gets: Process) -> None:
        name = await holds.posts.add(Stream())

        async def fail(*_: Any) -> None:
            raise OperationalError("down")

        with monkeypatch.context() as broken:
            broken.setattr(gets.feeds, "publish", fail)
            with pytest.raises(Overloaded, match="try again later"):
                await gets.posts.post(name, b"{}", NO_SCOPES)

    workers(main, FakeLayer())
    assert "Failed to forward a message" in caplog.text


@real_threads
def test_a_hanging_log_is_an_error_and_its_message_is_withdrawn(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
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
        posting = asyncio.create_task(gets.posts.post(name, b"{}", NO_SCOPES))
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
def test_a_stream_opens_only_where_messages_can_be_received(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_received_messages_do_not_pile_up_in_the_log(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_messages, "ANSWER_TIMEOUT_SECONDS", 1e9)

    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        name, body = await holds.posts.add(stream), b'"%b"' % (b"x" * 100_000)
        for _ in range(6):
            posting = asyncio.create_task(gets.posts.post(name, body, NO_SCOPES))
            await clock.advance_until(posting.done)  # an event too large for a wake is read from the log
            assert await posting is DeliveryStatus.TAKEN
        await eventually(lambda: not gets.posts._tasks)
        assert stream.taken == [body] * 6

    workers(main, FakeLayer())
    rows = list(StreamEvent.objects.order_by("seq").values_list("seq", "payload"))
    assert sum(len(payload) for _, payload in rows) < 3 * 110_000
    assert [seq for seq, _ in rows] == list(range(rows[0][0], rows[0][0] + len(rows)))


@real_threads
def test_a_disconnect_while_a_message_is_on_its_way_leaves_nothing_behind(clock: Clock) -> None:
    async def main(holds: Process, gets: Process) -> None:
        stream = Stream()
        stream.opened.clear()
        posting = asyncio.create_task(gets.posts.post(await holds.posts.add(stream), b"{}", NO_SCOPES))
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
def test_no_topic_is_followed_without_streams(clock: Clock) -> None:
    async def main(holds: Process, _: Process) -> None:
        first = await holds.posts.add(Stream())
        await clock.advance(3 * sse_messages.CHECK_INTERVAL_SECONDS)
        assert holds.posts._subscription.is_active
        holds.posts.remove(first)
        await clock.advance(sse_messages.CHECK_INTERVAL_SECONDS)
        assert not holds.posts._subscription.is_active
        stream = Stream()
        assert await holds.posts.post(await holds.posts.add(stream), b"{}", NO_SCOPES) is DeliveryStatus.TAKEN
        assert holds.posts._subscription.is_active

    workers(main)
