"""Events of a session in one worker, as the others receive them."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.db import OperationalError

from mcp_django import wiring
from mcp_django.models import EndReason, StreamEvent
from mcp_django.models import Session as Row
from mcp_django.protocol.revisions import LATEST_HANDSHAKE
from mcp_django.runtime.events import invalidation
from mcp_django.runtime.events.invalidation import InvalidationTopic
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.sessions import activity
from mcp_django.runtime.sessions import store as module
from mcp_django.runtime.sessions.activity import SessionActivity, get_reported_activity
from mcp_django.runtime.sessions.events import publish_session_end
from mcp_django.runtime.sessions.store import DatabaseSessionStore
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.calls.session import ServerSession
from mcp_django.signals import session_closed
from tests.runtime.channel_layer import FakeLayer
from tests.runtime.serving import WAIT_SECONDS, eventually, real_threads, serve
from tests.support.clock import Clock

pytestmark = real_threads


class CancellableCall:
    """A call in flight that records its cancellation."""

    def __init__(self) -> None:
        self.cancelled, self._loop = asyncio.Event(), asyncio.get_running_loop()

    def cancel(self) -> None:
        self.cancelled.set()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop


def is_followed(topic: InvalidationTopic | None) -> bool:
    assert topic is not None
    return any(subscription.is_active for _, subscription in topic._subscriptions.items())


class Worker(DatabaseSessionStore):
    """A store that learns of others from the log alone, as in a process of its own."""

    def __init__(self, executor: LeasingExecutor, layer: FakeLayer) -> None:
        self.feeds = EventPublisher(executor=executor, layer=layer, retention_seconds=600.0)
        super().__init__(executor, publisher=self.feeds)
        session_closed.disconnect(self._on_closed, sender=Row)

    async def open_session(self) -> ServerSession:
        session = await self.open(
            owner="ada",
            revision=LATEST_HANDSHAKE,
            client_info={"name": "client", "version": "1"},
            capabilities={},
            server="default",
        )
        session.initialized = True
        await self.save(session)
        return session

    async def found(self, session: ServerSession) -> ServerSession:
        found = await self.load(session.key, "ada")
        assert found is not None
        assert self.peek(session.key, "ada") is found
        return found

    def trusts(self, session: ServerSession) -> bool:
        return self.peek(session.key, "ada") is not None


@pytest.fixture
def layer(clock: Clock) -> FakeLayer:
    """Connect the workers. Time does not move, so they do not poll the log by themselves."""
    return FakeLayer()


def workers(main: Callable[[Worker, Worker], Awaitable[Any]], layer: FakeLayer | None = None) -> None:
    async def both(executor: LeasingExecutor) -> None:
        ours, theirs = Worker(executor, layer), Worker(executor, layer)

        def announce(*, session: Row, **_: Any) -> None:
            publish_session_end(ours.feeds, session)

        # Sessions end in `ours`, or in a third process.
        session_closed.connect(announce)
        try:
            await main(ours, theirs)
        finally:
            session_closed.disconnect(announce)
            ours.feeds._threaded_wake_publisher.close()
            theirs.feeds._threaded_wake_publisher.close()

    serve(both, queue=100)


@pytest.fixture(autouse=True)
def _no_other_announcement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disconnect the receiver of the application, which would notify the publisher of the test's process."""
    monkeypatch.setattr(wiring.get_services().event_publisher, "publish_on_commit", lambda *_, **__: None)


def end_in_the_admin(session: ServerSession) -> int:
    return Row.objects.filter(pk=session.pk).end(EndReason.ADMIN)


@pytest.mark.parametrize("wakes", [True, False])
def test_a_session_that_ends_elsewhere_is_unknown_and_its_calls_end(
    layer: FakeLayer, clock: Clock, wakes: bool
) -> None:
    async def main(ours: Worker, theirs: Worker) -> None:
        session = await ours.open_session()
        there = await theirs.found(session)
        there.in_flight[1] = call = CancellableCall()
        await ours.end(session, EndReason.CLIENT)
        if not wakes:
            await clock.advance_until(call.cancelled.is_set)
        await call.cancelled.wait()
        assert not theirs.trusts(session)
        assert await theirs.load(session.key, "ada") is None

    workers(main, layer if wakes else None)


def test_every_worker_receives_the_end_of_a_session_with_any_reason(layer: FakeLayer) -> None:
    reasons = [EndReason.ADMIN, EndReason.LIFETIME, EndReason.QUOTA]

    async def main(ours: Worker, theirs: Worker) -> None:
        for reason in reasons:
            session = await ours.open_session()
            await theirs.found(session)
            await ours._executor.run(Row.objects.filter(pk=session.pk).end, reason)
            await eventually(lambda session=session: not theirs.trusts(session) and not ours.trusts(session))  # type: ignore[misc]

    workers(main, layer)
    topics = StreamEvent.objects.filter(kind="ended").order_by("seq").values_list("topic", flat=True)
    assert [topic.partition(":")[0] for topic in topics] == ["session", "sessions"] * len(reasons)


def test_an_idle_session_is_ended_without_an_event() -> None:
    async def main(ours: Worker, theirs: Worker) -> None:
        session = await ours.open_session()
        await ours._executor.run(Row.objects.filter(pk=session.pk).end, EndReason.IDLE)

    workers(main)
    assert not StreamEvent.objects.filter(kind="ended").exists()


def test_a_call_is_cancelled_wherever_it_runs(layer: FakeLayer) -> None:
    async def main(ours: Worker, theirs: Worker) -> None:
        session = await ours.open_session()
        there = await theirs.found(session)
        there.in_flight[7], there.in_flight["7"] = seven, text = CancellableCall(), CancellableCall()
        await ours.cancel(session, 7)
        await seven.cancelled.wait()
        assert not text.cancelled.is_set()

    workers(main, layer)


def test_a_call_of_this_worker_is_cancelled_without_a_row() -> None:
    async def main(ours: Worker, _: Worker) -> None:
        session = await ours.open_session()
        session.in_flight[7] = call = CancellableCall()
        await ours.cancel(session, 7)
        assert call.cancelled.is_set()

    workers(main)
    assert not StreamEvent.objects.exists()


def test_a_client_cannot_fill_the_log_with_cancellations(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CANCELS_PER_MINUTE", 3)

    async def main(ours: Worker, _: Worker) -> None:
        session, other = await ours.open_session(), await ours.open_session()
        for id in range(20):
            await ours.cancel(session, id)
        await ours.cancel(other, 1)
        await clock.advance(60)
        await ours.cancel(session, 99)

    workers(main)
    assert StreamEvent.objects.filter(kind="cancel").count() == 3 + 1 + 1


def test_the_cancellation_of_a_long_id_is_a_bounded_row() -> None:
    async def main(ours: Worker, _: Worker) -> None:
        session = await ours.open_session()
        await ours.cancel(session, "x" * 100_000)

    workers(main)
    assert not StreamEvent.objects.exists()


def test_a_level_set_on_another_worker_holds_at_the_next_request(layer: FakeLayer) -> None:
    async def main(ours: Worker, theirs: Worker) -> None:
        session = await ours.open_session()
        there = await theirs.found(session)
        session.log_level = "error"
        await ours.save(session)
        await eventually(lambda: not theirs.trusts(session))
        assert ours.trusts(session)
        assert (await theirs.load(session.key, "ada"), there.log_level) == (there, "error")

    workers(main, layer)


def test_a_level_holds_without_a_request_while_a_call_is_open(layer: FakeLayer) -> None:
    async def main(ours: Worker, theirs: Worker) -> None:
        session = await ours.open_session()
        there = await theirs.found(session)
        there.open_streams += 1
        session.log_level = "error"
        await ours.save(session)
        await eventually(lambda: there.log_level == "error")

    workers(main, layer)


def test_a_busy_session_that_cannot_be_read_is_read_by_its_next_request(
    layer: FakeLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[Any] = []

    def fails(*_: Any, **__: Any) -> None:
        raise OperationalError("the database is down")

    async def main(ours: Worker, theirs: Worker) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        session = await ours.open_session()
        there = await theirs.found(session)
        there.open_streams += 1
        with monkeypatch.context() as down:
            down.setattr(theirs, "_find_row", fails)
            session.log_level = "error"
            await ours.save(session)
            await eventually(lambda: not theirs.trusts(session) and not theirs._tasks)
        gc.collect()
        assert (await theirs.load(session.key, "ada"), there.log_level) == (there, "error")

    workers(main, layer)
    assert problems == []


def test_initialized_on_another_worker_is_noticed(layer: FakeLayer) -> None:
    async def main(ours: Worker, theirs: Worker) -> None:
        session = await ours.open(
            owner="ada", revision=LATEST_HANDSHAKE, client_info={}, capabilities={}, server="default"
        )
        session.open_streams += 1
        there = await theirs.load(session.key, "ada")
        assert there is not None
        there.initialized = True
        await theirs.save(there)
        await eventually(lambda: session.initialized)

    workers(main, layer)


def test_the_worker_that_opened_a_session_publishes_no_initialized_event() -> None:
    async def main(ours: Worker, _: Worker) -> None:
        await ours.open_session()

    workers(main)
    assert not StreamEvent.objects.exists()


def test_session_events_are_followed_only_while_needed(clock: Clock) -> None:
    async def main(ours: Worker, theirs: Worker) -> None:
        session = await ours.open_session()
        there = await theirs.found(session)
        there.in_flight[1] = CancellableCall()
        followed, trusted = theirs._invalidation, theirs._entries[session.key]
        trusted.fresh_until = 0.0
        await clock.advance(3 * invalidation.CHECK_INTERVAL_SECONDS)
        assert is_followed(followed)
        del there.in_flight[1]
        await clock.advance_until(
            lambda: not is_followed(followed) and not theirs.feeds.get_follower().is_active,
            invalidation.CHECK_INTERVAL_SECONDS,
        )
        await theirs.found(session)
        assert is_followed(followed)

    workers(main)


def test_the_subscription_is_kept_during_the_lookup_of_a_session(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(ours: Worker, theirs: Worker) -> None:
        session, find = await ours.open_session(), theirs._find_row
        begun, go = threading.Event(), threading.Event()

        def slow_find(*arguments: Any, **options: Any) -> Row | None:
            begun.set()
            assert go.wait(WAIT_SECONDS)
            return find(*arguments, **options)

        monkeypatch.setattr(theirs, "_find_row", slow_find)
        finding = asyncio.create_task(theirs.found(session))
        await eventually(begun.is_set)
        await clock.advance(3 * invalidation.CHECK_INTERVAL_SECONDS)
        go.set()
        await finding
        assert is_followed(theirs._invalidation)

    workers(main)


def test_sessions_open_though_the_log_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(ours: Worker, theirs: Worker) -> None:
        session = await ours.open_session()

        async def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("no log")

        monkeypatch.setattr(theirs.feeds.get_follower(), "subscribe", fail)
        await theirs.found(session)
        monkeypatch.undo()

    workers(main)


class TestActivity:
    """Reports of open calls and streams for the admin, over all processes."""

    def test_processes_report_open_calls_and_their_end(self, clock: Clock) -> None:
        async def main(ours: Worker, theirs: Worker) -> None:
            session = await ours.open_session()
            there = await theirs.found(session)
            session.in_flight |= {1: CancellableCall(), 2: CancellableCall()}
            there.in_flight[3] = CancellableCall()
            there.open_streams = 1
            while (found := await ours._executor.run(get_reported_activity)) != {session.pk: SessionActivity(3, 1)}:
                assert set(found) <= {session.pk}
                await clock.advance(invalidation.CHECK_INTERVAL_SECONDS)
            session.in_flight.clear()
            there.in_flight.clear()
            there.open_streams = 0
            while await ours._executor.run(get_reported_activity):
                await clock.advance(invalidation.CHECK_INTERVAL_SECONDS)

        workers(main)

    def test_an_idle_process_writes_no_report(self, clock: Clock) -> None:
        async def main(ours: Worker, _: Worker) -> None:
            await ours.open_session()
            await clock.advance(3 * invalidation.CHECK_INTERVAL_SECONDS)

        workers(main)
        assert not StreamEvent.objects.exists()

    def test_a_report_that_is_not_repeated_expires(self, clock: Clock) -> None:
        async def main(ours: Worker, _: Worker) -> None:
            session = await ours.open_session()
            session.in_flight[1] = CancellableCall()
            while not await ours._executor.run(get_reported_activity):
                await clock.advance(invalidation.CHECK_INTERVAL_SECONDS)
            await eventually(lambda: not ours._tasks)  # an entry that is written late would carry the later time
            clock.move(activity.REPORT_TTL_SECONDS + 1)  # without a look, as if the process were gone
            assert await ours._executor.run(get_reported_activity) == {}

        workers(main)
