"""Questions whose answers reach another worker than the one that asked."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from mcp_django.models import StreamEvent
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.revisions import LATEST_HANDSHAKE
from mcp_django.runtime.calls import pending_requests
from mcp_django.runtime.calls.pending_requests import EventLogPendingRequests
from mcp_django.runtime.events.follower import TopicSubscription
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.sealing import NameSigner
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import Overloaded
from tests.support.clock import Clock

from .channel_layer import FakeLayer
from .serving import real_threads, serve

WAIT = 600.0
NEVER = 1e9
"""Seconds that no test lets pass."""


class Process:
    """One worker, as far as questions need it."""

    def __init__(self, executor: LeasingExecutor, layer: FakeLayer | None, secrets: tuple[str, ...] = ("key",)) -> None:
        self.feeds = EventPublisher(executor=executor, layer=layer, retention_seconds=600.0)
        self.replies = EventLogPendingRequests(self.feeds, NameSigner(secrets, purpose="question"), timeout=WAIT)

    def session(self, pk: int = 1) -> ServerSession:
        """The session as this worker knows it."""
        return ServerSession(
            key="k", owner="o", revision=LATEST_HANDSHAKE, client_info={}, client_capabilities={}, pk=pk
        )


def workers(main: Callable[[Process, Process], Awaitable[Any]], layer: FakeLayer | None = None) -> None:
    async def both(executor: LeasingExecutor) -> None:
        ours, theirs = Process(executor, layer), Process(executor, layer)
        try:
            await main(ours, theirs)
        finally:
            theirs.feeds._threaded_wake_publisher.close()

    serve(both)


async def ask(process: Process, session: ServerSession) -> "tuple[str, asyncio.Task[Any]]":
    """A question that has been sent, under its id, and the task that waits for its answer."""
    outbox, id = Outbox(), process.replies.new_id(session)

    async def waiting() -> Any:
        async with process.replies.accept_forwarded(session):
            return (await session.send_request(outbox, id, "roots/list", None, timeout=NEVER)).result

    task = asyncio.create_task(waiting())
    await outbox.read(NEVER)
    return id, task


@real_threads
def test_an_answer_that_reaches_another_worker_comes_to_the_one_that_asked(clock: Clock) -> None:
    async def main(asks: Process, hears: Process) -> None:
        id, task = await ask(asks, asks.session())
        elsewhere, response = hears.session(), jsonrpc.Response(id, {"roots": []}, None)
        assert not elsewhere.receive_response(response)
        assert hears.replies.is_valid_id(elsewhere, id)
        await hears.replies.forward(elsewhere, response)
        assert await task == {"roots": []}

    workers(main, FakeLayer())


@real_threads
def test_without_a_layer_it_comes_a_little_later(clock: Clock) -> None:
    async def main(asks: Process, hears: Process) -> None:
        id, task = await ask(asks, asks.session())
        await hears.replies.forward(hears.session(), jsonrpc.Response(id, None, {"code": 1, "message": "no"}))
        await clock.advance_until(task.done)
        await task

    workers(main)


@real_threads
def test_of_two_answers_the_first_counts(clock: Clock) -> None:
    async def main(asks: Process, hears: Process) -> None:
        session = asks.session()
        id, task = await ask(asks, session)
        assert session.receive_response(jsonrpc.Response(id, "here", None))
        await hears.replies.forward(hears.session(), jsonrpc.Response(id, "there", None))
        assert await task == "here"

    workers(main, FakeLayer())


@real_threads
def test_an_answer_of_another_session_is_not_heard(clock: Clock) -> None:
    async def main(asks: Process, hears: Process) -> None:
        session = asks.session(pk=1)
        id, task = await ask(asks, session)
        stranger = hears.session(pk=2)
        assert not hears.replies.is_valid_id(stranger, id)
        await hears.replies.forward(stranger, jsonrpc.Response(id, "stranger", None))
        await hears.replies.forward(hears.session(pk=1), jsonrpc.Response(id, "owner", None))
        assert await task == "owner"

    workers(main, FakeLayer())


@real_threads
def test_on_one_worker_nothing_is_written() -> None:
    async def main(asks: Process, _: Process) -> None:
        session = asks.session()
        id, task = await ask(asks, session)
        assert session.receive_response(jsonrpc.Response(id, {}, None))
        await task
        # Nor is an answer that comes twice, or too late, worth a row.
        assert not session.receive_response(jsonrpc.Response(id, {}, None))
        assert not asks.replies.is_valid_id(session, id)

    workers(main)
    assert not StreamEvent.objects.exists()


@real_threads
def test_an_answer_is_passed_on_once(clock: Clock) -> None:
    async def main(asks: Process, hears: Process) -> None:
        id, task = await ask(asks, asks.session())
        elsewhere = hears.session()
        for _ in range(3):
            if hears.replies.is_valid_id(elsewhere, id):
                await hears.replies.forward(elsewhere, jsonrpc.Response(id, {}, None))
        await task

    workers(main, FakeLayer())
    assert StreamEvent.objects.count() == 1


@real_threads
def test_what_could_not_be_passed_on_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(asks: Process, hears: Process) -> None:
        id, elsewhere = asks.replies.new_id(asks.session()), hears.session()

        async def fail(*_: Any) -> None:
            raise OperationalError("down")

        with monkeypatch.context() as broken:
            broken.setattr(hears.feeds, "publish", fail)
            with pytest.raises(Overloaded, match="send it again"):
                await hears.replies.forward(elsewhere, jsonrpc.Response(id, {}, None))
        assert hears.replies.is_valid_id(elsewhere, id)

    workers(main)


@real_threads
def test_a_question_is_asked_although_its_answer_cannot_be_followed_yet(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every thread may be kept by a call that itself waits for an answer."""

    async def main(asks: Process, hears: Process) -> None:
        here, opened = asks.feeds.get_follower(), asyncio.Event()
        follow = here.subscribe

        async def late(*args: Any, **options: Any) -> Any:
            await opened.wait()
            return await follow(*args, **options)

        monkeypatch.setattr(here, "subscribe", late)
        asking = asyncio.create_task(ask(asks, asks.session()))
        await clock.advance(pending_requests.SUBSCRIBE_TIMEOUT_SECONDS)
        id, task = await asking
        await hears.replies.forward(hears.session(), jsonrpc.Response(id, "while nobody listened", None))
        opened.set()
        assert await task == "while nobody listened"

    workers(main)


@real_threads
def test_a_call_that_is_cancelled_before_its_question_leaves_no_follower(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(asks: Process, _: Process) -> None:
        here, begun, opened, followings = (
            asks.feeds.get_follower(),
            asyncio.Event(),
            asyncio.Event(),
            list[TopicSubscription](),
        )
        follow = here.subscribe

        async def late(*args: Any, **options: Any) -> TopicSubscription:
            begun.set()
            await opened.wait()
            followings.append(await follow(*args, **options))
            return followings[-1]

        async def call() -> None:
            async with asks.replies.accept_forwarded(asks.session()):
                raise AssertionError("It was cancelled before")

        monkeypatch.setattr(here, "subscribe", late)
        task = asyncio.create_task(call())
        await begun.wait()
        opened.set()
        task.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others - {here._task})
        assert task.cancelled()
        assert all(following.is_stopped for following in followings)
        assert not here._topics

    workers(main)


class TestIds:
    """What a worker can tell of an id that it has never seen."""

    @pytest.fixture
    def asker(self) -> EventLogPendingRequests:
        return make("key")

    @pytest.fixture
    def reader(self) -> EventLogPendingRequests:
        return make("key")

    def test_one_made_elsewhere_is_genuine(
        self, asker: EventLogPendingRequests, reader: EventLogPendingRequests
    ) -> None:
        assert reader.is_valid_id(of(1), asker.new_id(of(1)))

    def test_no_two_are_alike(self, asker: EventLogPendingRequests) -> None:
        assert len({asker.new_id(of(1)) for _ in range(1000)}) == 1000

    def test_any_changed_character_makes_it_invented(
        self, asker: EventLogPendingRequests, reader: EventLogPendingRequests
    ) -> None:
        id = asker.new_id(of(1))
        for place, char in enumerate(id):
            other = "A" if char != "A" else "B"
            assert not reader.is_valid_id(of(1), id[:place] + other + id[place + 1 :])

    def test_an_invented_one_is_not_genuine(self, subtests: pytest.Subtests, reader: EventLogPendingRequests) -> None:
        for id in [1, 0, "", ".", "s1", "a.b", "é.ü", "x" * 100_000, "AAAAAAAAAAAAAAAA." + "A" * 22]:
            with subtests.test(id=id):
                assert not reader.is_valid_id(of(1), id)

    def test_that_of_another_session_is_not(
        self, asker: EventLogPendingRequests, reader: EventLogPendingRequests
    ) -> None:
        assert not reader.is_valid_id(of(2), asker.new_id(of(1)))
        assert not reader.is_valid_id(of(11), asker.new_id(of(1)))

    def test_that_of_a_question_which_waits_no_more_is_not(
        self, asker: EventLogPendingRequests, reader: EventLogPendingRequests, clock: Clock
    ) -> None:
        id = asker.new_id(of(1))
        clock.move(WAIT)
        assert reader.is_valid_id(of(1), id)
        clock.move(pending_requests.MAX_CLOCK_SKEW_SECONDS + 1)
        assert not reader.is_valid_id(of(1), id)

    def test_one_whose_time_does_not_fit_is_reported_once_a_minute(
        self, asker: EventLogPendingRequests, caplog: pytest.LogCaptureFixture, clock: Clock
    ) -> None:
        reader = make("key")
        reader.get_time = lambda: time.time() - pending_requests.MAX_CLOCK_SKEW_SECONDS - 30
        assert [reader.is_valid_id(of(1), asker.new_id(of(1))) for _ in range(3)] == [False] * 3
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "the clocks of the processes differ" in caplog.text
        clock.move(pending_requests.WARNING_INTERVAL_SECONDS)
        assert not reader.is_valid_id(of(1), asker.new_id(of(1)))
        assert not reader.is_valid_id(of(1), "invented.by.a.client")
        assert len(caplog.records) == 2

    def test_keys_are_rotated(self, reader: EventLogPendingRequests) -> None:
        old = make("old").new_id(of(1))
        assert make("new", "old").is_valid_id(of(1), old)
        assert not reader.is_valid_id(of(1), old)

    def test_what_is_remembered_is_bounded(
        self, asker: EventLogPendingRequests, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pending_requests, "MAX_REMEMBERED_IDS", 5)
        for _ in range(20):
            asker.new_id(of(1))
        assert len(asker._handled_ids) == 5


def make(*secrets: str) -> EventLogPendingRequests:
    return EventLogPendingRequests(None, NameSigner(secrets, purpose="question"), timeout=WAIT)  # type: ignore[arg-type]


def of(pk: int) -> Any:
    return SimpleNamespace(pk=pk)
