import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connections, transaction
from django.test import override_settings

from mcp_django.models import EventSequence, StreamEvent
from mcp_django.runtime.events import channel_layer
from mcp_django.runtime.events import follower as module
from mcp_django.runtime.events import publisher as publishing
from mcp_django.runtime.events.event_log import Event, EventDraft, EventLog
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.ports import Overloaded
from tests.runtime.channel_layer import FakeLayer
from tests.runtime.serving import WAIT_SECONDS, eventually, real_threads, serve, wait_until
from tests.support.clock import Clock

pytestmark = real_threads
LOG = EventLog()


class RecordingSink(list[Any]):
    """Records the payloads of its events."""

    def __call__(self, event: Event) -> None:
        self.append(event.payload)


@pytest.fixture
def layer() -> FakeLayer:
    return FakeLayer()


def run(main: Callable[[EventPublisher], Awaitable[Any]], *, layer: Any = None) -> Any:
    async def run_with_publishers(executor: LeasingExecutor) -> Any:
        return await main(EventPublisher(executor=executor, layer=layer, retention_seconds=600))

    return serve(run_with_publishers)


def run_two_processes(main: Callable[[EventPublisher, EventPublisher], Awaitable[Any]], layer: Any) -> Any:
    """Run `main` with two processes that share only the layer and the database."""

    async def run_with_publishers(executor: LeasingExecutor) -> Any:
        ours, theirs = (EventPublisher(executor=executor, layer=layer, retention_seconds=600) for _ in range(2))
        try:
            return await main(ours, theirs)
        finally:
            theirs._threaded_wake_publisher.close()

    return serve(run_with_publishers)


def test_all_subscribers_of_a_topic_receive_its_events_in_order(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        one, other, elsewhere = RecordingSink(), RecordingSink(), RecordingSink()
        feed = feeds.get_follower()
        await asyncio.gather(feed.subscribe("a", one), feed.subscribe("a", other), feed.subscribe("b", elsewhere))
        for n in range(5):
            await feeds.publish(EventDraft("a", "message", n), EventDraft("b", "message", -n))
        await eventually(lambda: len(elsewhere) == 5)
        assert one == other == [0, 1, 2, 3, 4]
        assert elsewhere == [0, -1, -2, -3, -4]

    run(main)


def test_earlier_events_are_delivered_only_on_request(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        first, second, _ = await feeds.publish(*(EventDraft("a", "message", n) for n in range(3)))
        live, resumed, all_of_it = RecordingSink(), RecordingSink(), RecordingSink()
        await feeds.get_follower().subscribe("a", live)
        following = await feeds.get_follower().subscribe("a", resumed, after=first.seq)
        assert resumed == [1, 2]
        assert following.position == second.seq + 1
        await feeds.get_follower().subscribe("a", all_of_it, after=0)
        await feeds.publish(EventDraft("a", "message", 3))
        await eventually(lambda: len(all_of_it) == 4)
        assert (live, resumed, all_of_it) == ([3], [1, 2, 3], [0, 1, 2, 3])

    run(main)


def test_past_events_are_read_in_several_pages(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAGE_EVENTS", 3)

    async def main(feeds: EventPublisher) -> None:
        first, *_ = await feeds.publish(*(EventDraft("a" if n % 2 else "b", "message", n) for n in range(20)))
        received = RecordingSink()
        await feeds.get_follower().subscribe("a", received, after=first.seq - 1)
        assert received == list(range(1, 20, 2))
        await asyncio.to_thread(append_without_wake, *(EventDraft("a", "message", n) for n in range(20, 30)))
        await clock.advance_until(lambda: len(received) == 20)
        assert received[10:] == list(range(20, 30))

    run(main)


def test_a_resume_misses_and_repeats_nothing_while_events_arrive(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        [mark] = await feeds.publish(EventDraft("a", "message", 0))
        stop = asyncio.Event()
        last = 0

        async def pour() -> None:
            nonlocal last
            while not stop.is_set():
                last += 1
                await feeds.publish(EventDraft("a", "message", last))

        pouring = asyncio.create_task(pour())
        received = [RecordingSink() for _ in range(20)]
        for sink in received:
            await feeds.get_follower().subscribe("a", sink, after=mark.seq)
        stop.set()
        await pouring
        await eventually(lambda: all(len(sink) == last for sink in received))
        assert all(sink == list(range(1, last + 1)) for sink in received)

    run(main)


def test_events_that_arrive_during_the_read_of_the_past_come_after_it(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        received, feed = RecordingSink(), feeds.get_follower()
        [mark, _] = await feeds.publish(EventDraft("a", "message", 0), EventDraft("a", "message", 1))
        await feed.subscribe("b", RecordingSink())
        reading, over = threading.Event(), threading.Event()

        def read(*args: Any, **kwargs: Any) -> list[Event]:
            reading.set()
            assert over.wait(WAIT_SECONDS)
            return EventLog().read(*args, **kwargs)

        feed.log.read = read  # type: ignore[method-assign]
        following = asyncio.create_task(feed.subscribe("a", received, after=mark.seq))
        assert await asyncio.to_thread(reading.wait, WAIT_SECONDS)
        [event] = await feeds.publish(EventDraft("a", "message", 2))
        await eventually(lambda: feed.position == event.seq)
        assert received == []
        over.set()
        await following
        assert received == [1, 2]

    run(main)


def append_without_wake(*drafts: EventDraft) -> list[Event]:
    """Append as another process whose wake is lost."""
    try:
        return LOG.append(drafts)
    finally:
        connections.close_all()


def test_events_without_a_wake_are_found_by_polling(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        received = RecordingSink()
        await feeds.get_follower().subscribe("a", received)
        await asyncio.to_thread(append_without_wake, EventDraft("a", "message", 1))
        await clock.advance_until(lambda: received == [1])

    run(main)


def test_a_missing_number_is_read_from_the_log_before_later_events_are_delivered(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        received = RecordingSink()
        await feeds.get_follower().subscribe("a", received)
        await asyncio.to_thread(append_without_wake, EventDraft("a", "message", 1))
        await feeds.publish(EventDraft("a", "message", 2))
        assert received == []
        await clock.advance(module.GAP_TIMEOUT_SECONDS)
        await eventually(lambda: len(received) == 2)
        assert received == [1, 2]

    run(main)


def test_events_that_arrive_out_of_order_are_delivered_in_order_without_a_read(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        received, feed = RecordingSink(), feeds.get_follower()
        await feed.subscribe("a", received)
        read = feed.log.read = Reads()  # type: ignore[method-assign]
        events = await asyncio.to_thread(append_without_wake, *(EventDraft("a", "message", n) for n in range(4)))
        for index in (3, 1, 0, 2, 1):
            feed.receive([events[index]])
        assert received == [0, 1, 2, 3]
        assert read.count == 0

    run(main)


class Reads:
    """Counts the reads of the log."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *args: Any, **kwargs: Any) -> list[Event]:
        self.count += 1
        return EventLog().read(*args, **kwargs)


def test_many_gaps_at_once_are_read_once(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        received, feed = RecordingSink(), feeds.get_follower()
        await feed.subscribe("a", received)
        read = feed.log.read = Reads()  # type: ignore[method-assign]
        events = await asyncio.to_thread(append_without_wake, *(EventDraft("a", "message", n) for n in range(40)))
        for event in events[1::2]:
            feed.receive([event])
        await clock.advance(module.GAP_TIMEOUT_SECONDS)
        await eventually(lambda: len(received) == 40)
        assert received == list(range(40))
        assert read.count == 1

    run(main)


def test_deleted_events_do_not_delay_the_others(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        received, feed = RecordingSink(), feeds.get_follower()
        following = await feed.subscribe("a", received)
        events = await asyncio.to_thread(append_and_delete)
        await clock.advance_until(lambda: received == [3])
        await asyncio.to_thread(append_and_delete, 4)
        await clock.advance_until(lambda: following.position == events[-1].seq + 4)
        assert received == [3]

    run(main)


def append_and_delete(count: int = 3) -> list[Event]:
    with transaction.atomic():
        events = LOG.append([EventDraft("a", "message", n) for n in range(1, 5)])
        StreamEvent.objects.filter(seq__in=[event.seq for event in events if event.payload != 3 or count == 4]).delete()
    connections.close_all()
    return events


def test_a_sequence_that_went_back_is_followed_from_its_new_position(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        received, feed = RecordingSink(), feeds.get_follower()
        following = await feed.subscribe("a", received)
        await feeds.publish(*(EventDraft("a", "message", n) for n in range(5)))
        await eventually(lambda: len(received) == 5)
        await asyncio.to_thread(go_back, 3)
        await clock.advance_until(lambda: feed.position == following_from - 3)
        await feeds.publish(EventDraft("a", "message", "again"))
        await eventually(lambda: received[5:] == ["again"])
        following.stop()

    following_from = LOG.head() + 5
    run(main)


def test_a_resume_from_beyond_the_end_receives_the_next_events(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        [event] = await feeds.publish(EventDraft("a", "message", 0))
        received, ahead = RecordingSink(), RecordingSink()
        await feeds.get_follower().subscribe("a", received, after=event.seq + 1000)
        [later] = await asyncio.to_thread(append_without_wake, EventDraft("a", "message", 1))
        # The client received this one from another worker.
        await feeds.get_follower().subscribe("a", ahead, after=later.seq)
        await feeds.publish(EventDraft("a", "message", 2))
        await clock.advance_until(lambda: (received, ahead) == ([1, 2], [2]))

    run(main)


def go_back(by: int) -> None:
    last = EventSequence.objects.get().last - by
    StreamEvent.objects.filter(seq__gt=last).delete()
    EventSequence.objects.update(last=last)
    connections.close_all()


def test_an_event_that_arrives_during_a_read_of_the_log_does_not_reset_the_position(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(feeds: EventPublisher) -> None:
        received, feed = RecordingSink(), feeds.get_follower()
        await feed.subscribe("a", received)
        reading, over = threading.Event(), threading.Event()

        def head(self: EventLog) -> int:
            found = StreamEvent.objects.all().get_last_number()
            reading.set()
            assert over.wait(WAIT_SECONDS)
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(EventLog, "head", head)
            await clock.advance_until(reading.is_set)
            [event] = await feeds.publish(EventDraft("a", "message", 1))
            await eventually(lambda: received == [1])
            over.set()
        later = feed.position
        await feeds.publish(EventDraft("a", "message", 2))
        await eventually(lambda: received[1:] == [2])
        assert later == event.seq

    run(main)
    assert caplog.records == []


def test_stop_is_final_idempotent_and_may_be_called_by_the_sink(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        received = RecordingSink()

        def once(event: Event) -> None:
            received(event)
            following.stop()
            following.stop()

        following = await feeds.get_follower().subscribe("a", once)
        [first, _] = await feeds.publish(EventDraft("a", "message", 1), EventDraft("a", "message", 2))
        await feeds.publish(EventDraft("a", "message", 3))
        await clock.advance_until(lambda: not feeds.get_follower().is_active)
        assert received == [1]
        assert following.position == first.seq

    run(main)


def test_a_sink_that_stops_during_past_events_receives_no_more() -> None:
    async def main(feeds: EventPublisher) -> None:
        first, *_ = await feeds.publish(*(EventDraft("a", "message", n) for n in range(5)))
        events = await feeds.executor.run(LOG.read, first.seq - 1)
        received = RecordingSink()
        feed = feeds.get_follower()

        def until_two(event: Event) -> None:
            received(event)
            if event.payload == 2:
                feed._topics["a"][0].stop()

        following = await feed.subscribe("a", until_two, after=first.seq - 1)
        assert received == [0, 1, 2]
        assert following.is_stopped
        assert following.position == events[2].seq

    run(main)


def test_a_failing_sink_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main(feeds: EventPublisher) -> None:
        received = RecordingSink()

        def fail(event: Event) -> None:
            raise ZeroDivisionError

        await feeds.get_follower().subscribe("a", fail)
        await feeds.get_follower().subscribe("a", received)
        await feeds.publish(EventDraft("a", "message", 1))
        await eventually(lambda: received == [1])

    run(main)
    assert "Event handler failed" in caplog.text


def test_the_follower_ends_without_subscribers_and_starts_again(clock: Clock) -> None:
    async def main(feeds: EventPublisher) -> None:
        feed = feeds.get_follower()
        for turn in range(3):
            received = RecordingSink()
            following = await feed.subscribe("a", received)
            await feeds.publish(EventDraft("a", "message", turn))
            # mypy: the type of a lambda with defaults cannot be inferred.
            await eventually(lambda received=received, turn=turn: received == [turn])  # type: ignore[misc]
            following.stop()
            await clock.advance_until(lambda: not feed.is_active)
            assert len(asyncio.all_tasks()) == 1

    run(main)


def test_a_loop_that_ends_closes_its_follower_without_a_log_line(
    layer: FakeLayer, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    loops: list[weakref.ref[Any]] = []
    kept: list[EventPublisher] = []

    async def main(feeds: EventPublisher) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        kept.append(feeds)
        await feeds.get_follower().subscribe("a", RecordingSink())

    run(main, layer=layer)
    wait_until(lambda: gc.collect() >= 0 and loops[0]() is None)  # a thread may be finishing a read
    assert not any(layer.groups.values())
    assert caplog.records == []
    assert [str(warning.message) for warning in recwarn if issubclass(warning.category, RuntimeWarning)] == []


def test_close_ends_the_follower_at_once() -> None:
    async def main(feeds: EventPublisher) -> None:
        await feeds.get_follower().subscribe("a", RecordingSink())
        await asyncio.to_thread(feeds.close_follower, asyncio.get_running_loop())
        assert not feeds.get_follower().is_active

    run(main)


def test_a_short_database_outage_delays_events_and_loses_none(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(feeds: EventPublisher) -> None:
        received, feed = RecordingSink(), feeds.get_follower()
        await feed.subscribe("a", received)
        failing = threading.Event()

        def head(self: EventLog) -> int:
            failing.set()
            raise OperationalError("the server closed the connection unexpectedly")

        with monkeypatch.context() as broken:
            broken.setattr(EventLog, "head", head)
            await asyncio.to_thread(append_without_wake, EventDraft("a", "message", 1))
            await clock.advance_until(failing.is_set)
            with pytest.raises(OperationalError):
                await (
                    EventPublisher(executor=feeds.executor, layer=None, retention_seconds=600)
                    .get_follower()
                    .subscribe("a", RecordingSink())
                )
        await clock.advance_until(lambda: received == [1])

    run(main)
    assert caplog.text.count("Failed to read the event log") == 2


def test_a_follower_whose_start_failed_can_be_subscribed_to_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(feeds: EventPublisher) -> None:
        received, feed = RecordingSink(), feeds.get_follower()
        with monkeypatch.context() as broken:
            broken.setattr(EventLog, "head", lambda self: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                await feed.subscribe("a", received)
        await feed.subscribe("a", received)
        await feeds.publish(EventDraft("a", "message", 1))
        await eventually(lambda: received == [1])

    run(main)


def test_busy_threads_delay_the_follower_without_an_error(clock: Clock) -> None:
    async def main(executor: LeasingExecutor) -> None:
        feeds, received, gate = (
            EventPublisher(executor=executor, layer=None, retention_seconds=600),
            RecordingSink(),
            threading.Event(),
        )
        await feeds.get_follower().subscribe("a", received)
        busy = [
            asyncio.create_task(executor.run(gate.wait, WAIT_SECONDS))
            for _ in range(executor.max_threads + executor.max_queued + 1)
        ]
        await asyncio.sleep(0)
        publishing = asyncio.create_task(feeds.publish(EventDraft("a", "message", 1)))
        await asyncio.sleep(0)
        gate.set()
        await publishing
        refused = [result for result in await asyncio.gather(*busy, return_exceptions=True) if result is not True]
        assert refused
        assert all(isinstance(problem, Overloaded) for problem in refused)
        await eventually(lambda: received == [1])

    serve(main)


def test_every_loop_of_a_process_receives_the_event() -> None:
    executor = LeasingExecutor(max_threads=2)
    feeds = EventPublisher(executor=executor, layer=None, retention_seconds=600)
    ready, over = threading.Barrier(3), threading.Event()
    received: list[RecordingSink] = []

    async def listen() -> None:
        sink = RecordingSink()
        received.append(sink)
        await feeds.get_follower().subscribe("a", sink)
        await asyncio.to_thread(ready.wait, WAIT_SECONDS)
        await eventually(lambda: sink == [1, 2])

    threads = [threading.Thread(target=asyncio.run, args=(listen(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(WAIT_SECONDS)
    feeds.publish_on_commit(EventDraft("a", "message", 1))
    serve(lambda _: feeds.publish(EventDraft("a", "message", 2)))
    for thread in threads:
        thread.join(WAIT_SECONDS)
    over.set()
    executor.close(timeout=WAIT_SECONDS)
    assert received == [[1, 2], [1, 2]]


def test_publish_on_commit_publishes_after_a_commit_and_never_after_a_rollback() -> None:
    async def main(feeds: EventPublisher) -> None:
        received = RecordingSink()
        await feeds.get_follower().subscribe("a", received)

        def work() -> None:
            with transaction.atomic():
                feeds.publish_on_commit(EventDraft("a", "message", "kept"))
                assert not StreamEvent.objects.filter(topic="a").exists()
            with transaction.atomic():
                feeds.publish_on_commit(EventDraft("a", "message", "lost"))
                transaction.set_rollback(True)
            feeds.publish_on_commit(EventDraft("a", "message", "at once"))
            connections.close_all()

        await asyncio.to_thread(work)
        await eventually(lambda: received == ["kept", "at once"])

    run(main)


def test_publishing_inside_a_call_is_outside_its_transaction() -> None:
    async def main(executor: LeasingExecutor) -> None:
        feeds = EventPublisher(executor=executor, layer=None, retention_seconds=600)
        received = RecordingSink()
        await feeds.get_follower().subscribe("a", received)
        with executor.context():
            async with executor.atomic(["default"]):
                await feeds.publish(EventDraft("a", "message", 1))
                await executor.run(transaction.set_rollback, True)
        await eventually(lambda: received == [1])
        assert [event.payload for event in await executor.run(LOG.read, 0, topic="a")] == [1]

    serve(main)


def test_a_cancelled_publish_completes() -> None:
    async def main(feeds: EventPublisher) -> None:
        received = RecordingSink()
        await feeds.get_follower().subscribe("a", received)
        publishing = asyncio.create_task(feeds.publish(EventDraft("a", "message", 1)))
        await asyncio.sleep(0)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        await eventually(lambda: received == [1])

    run(main)


def test_a_wake_carries_its_events_to_another_process(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        received, feed = RecordingSink(), ours.get_follower()
        await feed.subscribe("a", received)
        read = feed.log.read = Reads()  # type: ignore[method-assign]
        for n in range(3):
            await theirs.publish(EventDraft("a", "message", {"n": n}))
        await eventually(lambda: len(received) == 3)
        assert received == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert read.count == 0

    run_two_processes(main, layer)


def test_projects_that_share_a_channel_layer_receive_nothing_from_each_other(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        received = RecordingSink()
        await ours.get_follower().subscribe("a", received)
        position = ours.get_follower().position
        with override_settings(SECRET_KEY="another"):
            theirs.get_follower().wake_publisher.publish([Event(position + 1, "a", "message", "theirs")])
            await asyncio.to_thread(theirs.get_follower().wake_publisher.idle.wait, WAIT_SECONDS)
        assert layer.sent
        await theirs.publish(EventDraft("a", "message", "ours"))
        await eventually(lambda: received)
        assert received == ["ours"]

    run_two_processes(main, layer)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_child_of_a_fork_sends_its_own_wakes(layer: FakeLayer) -> None:
    async def main(feeds: EventPublisher) -> None:
        await feeds.get_follower().subscribe("a", RecordingSink())
        pid = os.fork()
        if pid == 0:
            try:
                # Only this: the loop, threads and connections of the parent do not belong to the child.
                feeds._notify_followers([Event(1, "a", "message", None)])
                sent = feeds._threaded_wake_publisher._publisher.idle.wait(WAIT_SECONDS) and bool(layer.sent)
            finally:
                os._exit(0 if sent else 1)
        assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1]) == 0

    run(main, layer=layer)


def test_another_database_is_another_log(subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in ["HOST", "PORT", "NAME"]:
        with subtests.test(entry=entry):
            ours = channel_layer.get_group_name()
            monkeypatch.setitem(connections.databases["default"], entry, "another")
            assert channel_layer.get_group_name() != ours


def test_an_event_too_large_for_a_wake_is_read_from_the_log(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        received = RecordingSink()
        await ours.get_follower().subscribe("a", received)
        large = "x" * (channel_layer.MAX_WAKE_BYTES + 1)
        await theirs.publish(
            EventDraft("a", "message", 1), EventDraft("a", "message", large), EventDraft("a", "message", 3)
        )
        await clock.advance_until(lambda: len(received) == 3, module.GAP_TIMEOUT_SECONDS)
        assert received == [1, large, 3]
        assert all(len(str(message)) < 2 * channel_layer.MAX_WAKE_BYTES for message in layer.sent)

    run_two_processes(main, layer)


def test_many_events_are_sent_in_wakes_of_bounded_size(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        received, feed = RecordingSink(), ours.get_follower()
        await feed.subscribe("a", received)
        read = feed.log.read = Reads()  # type: ignore[method-assign]
        text = "x" * 1000
        await theirs.publish(*(EventDraft("a", "message", f"{n} {text}") for n in range(50)))
        await eventually(lambda: len(received) == 50)
        assert [int(payload.split()[0]) for payload in received] == list(range(50))
        assert read.count == 0
        assert 6 < len(layer.sent) < 10

    run_two_processes(main, layer)


def test_lost_wakes_delay_events_and_lose_none(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        received = RecordingSink()
        await ours.get_follower().subscribe("a", received)
        for n in range(30):
            layer.deaf = n % 3 != 0
            await theirs.publish(EventDraft("a", "message", n))
        await clock.advance_until(lambda: len(received) == 30)
        assert received == list(range(30))

    run_two_processes(main, layer)


def test_a_broken_layer_is_logged_once_and_events_still_arrive(
    layer: FakeLayer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        channel_layer._failure_logger._next_log_time = 0.0
        layer.broken = True
        received = RecordingSink()
        following = asyncio.create_task(ours.get_follower().subscribe("a", received))
        await clock.advance_until(following.done)  # it waits in vain for the layer
        for n in range(5):
            await theirs.publish(EventDraft("a", "message", n))
        await clock.advance_until(lambda: received == [0, 1, 2, 3, 4])
        layer.broken = False
        await clock.advance_until(lambda: any(layer.groups.values()))
        # The clock does not move, so the log is not polled, and only a wake can announce this one.
        await theirs.publish(EventDraft("a", "message", 5))
        await eventually(lambda: received[5:] == [5])

    run_two_processes(main, layer)
    assert caplog.text.count("Channel layer failed") == 1


def test_a_lost_group_membership_is_renewed(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        received = RecordingSink()
        await ours.get_follower().subscribe("a", received)
        layer.groups.clear()
        joins = layer.joins
        await clock.advance(channel_layer.JOIN_INTERVAL_SECONDS - 1)
        assert layer.joins == joins
        await clock.advance(1)
        assert layer.joins > joins
        await theirs.publish(EventDraft("a", "message", 1))
        await eventually(lambda: received == [1])

    run_two_processes(main, layer)


def test_malformed_messages_in_the_group_are_ignored(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        received = RecordingSink()
        await ours.get_follower().subscribe("a", received)
        for odd in (None, 1, {}, {"head": 3}, {"head": "x", "events": []}, {"head": 1, "events": [[1]]}, ValueError()):
            for loop, queue in layer.channels.values():
                loop.call_soon_threadsafe(queue.put_nowait, odd)
        await theirs.publish(EventDraft("a", "message", 1))
        await clock.advance_until(lambda: received == [1], module.GAP_TIMEOUT_SECONDS)

    run_two_processes(main, layer)


def test_a_thread_without_a_loop_wakes_other_processes(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        received = RecordingSink()
        await ours.get_follower().subscribe("a", received)

        def work() -> None:
            with transaction.atomic():
                theirs.publish_on_commit(EventDraft("a", "message", 1))
            connections.close_all()

        await asyncio.to_thread(work)
        await eventually(lambda: received == [1])

    run_two_processes(main, layer)


def test_a_publish_from_a_loop_that_ends_reaches_every_process(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        here, there = RecordingSink(), RecordingSink()
        await ours.get_follower().subscribe("a", here)
        await theirs.get_follower().subscribe("a", there)

        def request() -> None:
            async_to_sync(theirs.publish)(EventDraft("a", "message", 1))
            connections.close_all()

        await asyncio.to_thread(request)
        await eventually(lambda: (here, there) == ([1], [1]))

    run_two_processes(main, layer)


def test_publishing_in_a_transaction_of_the_thread_waits_for_the_commit(layer: FakeLayer, clock: Clock) -> None:
    async def main(ours: EventPublisher, theirs: EventPublisher) -> None:
        received = RecordingSink()
        await ours.get_follower().subscribe("a", received)

        def command() -> None:
            with transaction.atomic():
                async_to_sync(theirs.publish)(EventDraft("a", "message", "lost"))
                transaction.set_rollback(True)
            with transaction.atomic():
                async_to_sync(theirs.publish)(EventDraft("a", "message", "kept"))
                assert layer.sent == []
            connections.close_all()

        await asyncio.to_thread(command)
        await eventually(lambda: received == ["kept"])

    run_two_processes(main, layer)


def test_the_process_sends_the_wakes_that_an_ended_loop_left_unsent(layer: FakeLayer) -> None:
    executor = LeasingExecutor(max_threads=2)
    feeds = EventPublisher(executor=executor, layer=layer, retention_seconds=600)

    async def main() -> None:
        await feeds.get_follower().subscribe("a", RecordingSink())
        sending = asyncio.Event()

        async def stuck(group: str, message: Any) -> None:
            sending.set()
            await asyncio.Event().wait()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(layer, "group_send", stuck)
            await feeds.publish(EventDraft("a", "message", 1))
            await sending.wait()
            await feeds.publish(EventDraft("a", "message", 2))
            await asyncio.sleep(0)

    asyncio.run(main())
    feeds._threaded_wake_publisher.close(WAIT_SECONDS)
    executor.close(timeout=WAIT_SECONDS)
    assert [event[3] for message in layer.sent for event in message["events"]] == ["2"]


def test_publishing_purges_old_events_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MAX_EVENTS_BETWEEN_PURGES", 3)

    async def main(executor: LeasingExecutor) -> None:
        feeds = EventPublisher(executor=executor, layer=None, retention_seconds=0)
        left = []
        for _ in range(7):
            await feeds.publish(EventDraft("a", "message"))
            left.append(len(await executor.run(LOG.read, 0)))
        assert left == [0, 1, 2, 0, 1, 2, 0]

    serve(main)


@pytest.mark.django_db(transaction=False)
async def test_a_test_case_subscribes_and_publishes_on_its_own_connection() -> None:
    executor = LeasingExecutor(max_threads=2)
    feeds, received = (
        EventPublisher(executor=executor, layer=None, retention_seconds=600),
        RecordingSink(),
    )
    await feeds.get_follower().subscribe("a", received)
    await feeds.publish(EventDraft("a", "message", 1))
    await eventually(lambda: received == [1])
