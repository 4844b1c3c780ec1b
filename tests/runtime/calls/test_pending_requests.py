"""Requests to the client whose responses reach another worker than the sender."""

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
from tests.runtime.channel_layer import FakeLayer
from tests.runtime.serving import real_threads, serve
from tests.support.clock import Clock

WAIT = 600.0
NEVER = 1e9
"""Seconds that no test lets pass."""


class Process:
    """One worker, with the parts that requests to the client need."""

    def __init__(self, executor: LeasingExecutor, layer: FakeLayer | None, secrets: tuple[str, ...] = ("key",)) -> None:
        self.feeds = EventPublisher(executor=executor, layer=layer, retention_seconds=600.0)
        self.replies = EventLogPendingRequests(self.feeds, NameSigner(secrets, purpose="question"), timeout=WAIT)

    def session(self, pk: int = 1) -> ServerSession:
        """Return the session as this worker has it."""
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
    """Send a request; return its id, and the task that waits for its response."""
    outbox, id = Outbox(), process.replies.new_id(session)

    async def waiting() -> Any:
        async with process.replies.accept_forwarded(session):
            return (await session.send_request(outbox, id, "roots/list", None, timeout=NEVER)).result

    task = asyncio.create_task(waiting())
    await outbox.read(NEVER)
    return id, task


@real_threads
def test_a_response_that_reaches_another_worker_is_forwarded_to_the_sender(clock: Clock) -> None:
    async def main(asks: Process, forwards: Process) -> None:
        id, task = await ask(asks, asks.session())
        elsewhere, response = forwards.session(), jsonrpc.Response(id, {"roots": []}, None)
        assert not elsewhere.receive_response(response)
        assert forwards.replies.is_valid_id(elsewhere, id)
        await forwards.replies.forward(elsewhere, response)
        assert await task == {"roots": []}

    workers(main, FakeLayer())


@real_threads
def test_without_a_layer_it_arrives_a_little_later(clock: Clock) -> None:
    async def main(asks: Process, forwards: Process) -> None:
        id, task = await ask(asks, asks.session())
        await forwards.replies.forward(forwards.session(), jsonrpc.Response(id, None, {"code": 1, "message": "no"}))
        await clock.advance_until(task.done)
        await task

    workers(main)


@real_threads
def test_of_two_answers_the_first_counts(clock: Clock) -> None:
    async def main(asks: Process, forwards: Process) -> None:
        session = asks.session()
        id, task = await ask(asks, session)
        assert session.receive_response(jsonrpc.Response(id, "here", None))
        await forwards.replies.forward(forwards.session(), jsonrpc.Response(id, "there", None))
        assert await task == "here"

    workers(main, FakeLayer())


@real_threads
def test_a_response_of_another_session_is_ignored(clock: Clock) -> None:
    async def main(asks: Process, forwards: Process) -> None:
        session = asks.session(pk=1)
        id, task = await ask(asks, session)
        stranger = forwards.session(pk=2)
        assert not forwards.replies.is_valid_id(stranger, id)
        await forwards.replies.forward(stranger, jsonrpc.Response(id, "stranger", None))
        await forwards.replies.forward(forwards.session(pk=1), jsonrpc.Response(id, "owner", None))
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
def test_a_response_is_forwarded_once(clock: Clock) -> None:
    async def main(asks: Process, forwards: Process) -> None:
        id, task = await ask(asks, asks.session())
        elsewhere = forwards.session()
        for _ in range(3):
            if forwards.replies.is_valid_id(elsewhere, id):
                await forwards.replies.forward(elsewhere, jsonrpc.Response(id, {}, None))
        await task

    workers(main, FakeLayer())
    assert StreamEvent.objects.count() == 1


@real_threads
def test_a_response_that_could_not_be_forwarded_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(asks: Process, forwards: Process) -> None:
        id, elsewhere = asks.replies.new_id(asks.session()), forwards.session()

        async def fail(*_: Any) -> None:
            raise OperationalError("down")

        with monkeypatch.context() as broken:
            broken.setattr(forwards.feeds, "publish", fail)
            with pytest.raises(Overloaded, match="send it again"):
                await forwards.replies.forward(elsewhere, jsonrpc.Response(id, {}, None))
        assert forwards.replies.is_valid_id(elsewhere, id)

    workers(main)


@real_threads
def test_a_request_is_sent_although_its_response_cannot_be_followed_yet(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every thread may be taken by a call that itself waits for an answer."""

    async def main(asks: Process, forwards: Process) -> None:
        here, opened = asks.feeds.get_follower(), asyncio.Event()
        follow = here.subscribe

        async def late(*args: Any, **options: Any) -> Any:
            await opened.wait()
            return await follow(*args, **options)

        monkeypatch.setattr(here, "subscribe", late)
        asking = asyncio.create_task(ask(asks, asks.session()))
        await clock.advance(pending_requests.SUBSCRIBE_TIMEOUT_SECONDS)
        id, task = await asking
        await forwards.replies.forward(forwards.session(), jsonrpc.Response(id, "without a listener", None))
        opened.set()
        assert await task == "without a listener"

    workers(main)


@real_threads
def test_a_call_cancelled_before_its_request_leaves_no_subscription(
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
    """Which ids a worker accepts that it has not made itself."""

    @pytest.fixture
    def asker(self) -> EventLogPendingRequests:
        return make("key")

    @pytest.fixture
    def reader(self) -> EventLogPendingRequests:
        return make("key")

    def test_an_id_of_another_worker_is_valid(
        self, asker: EventLogPendingRequests, reader: EventLogPendingRequests
    ) -> None:
        assert reader.is_valid_id(of(1), asker.new_id(of(1)))

    def test_ids_are_unique(self, asker: EventLogPendingRequests) -> None:
        assert len({asker.new_id(of(1)) for _ in range(1000)}) == 1000

    def test_an_id_with_a_changed_character_is_invalid(
        self, asker: EventLogPendingRequests, reader: EventLogPendingRequests
    ) -> None:
        id = asker.new_id(of(1))
        for place, char in enumerate(id):
            other = "A" if char != "A" else "B"
            assert not reader.is_valid_id(of(1), id[:place] + other + id[place + 1 :])

    def test_an_invented_id_is_invalid(self, subtests: pytest.Subtests, reader: EventLogPendingRequests) -> None:
        for id in [1, 0, "", ".", "s1", "a.b", "é.ü", "x" * 100_000, "AAAAAAAAAAAAAAAA." + "A" * 22]:
            with subtests.test(id=id):
                assert not reader.is_valid_id(of(1), id)

    def test_an_id_of_another_session_is_invalid(
        self, asker: EventLogPendingRequests, reader: EventLogPendingRequests
    ) -> None:
        assert not reader.is_valid_id(of(2), asker.new_id(of(1)))
        assert not reader.is_valid_id(of(11), asker.new_id(of(1)))

    def test_the_id_of_a_request_that_waits_no_more_is_invalid(
        self, asker: EventLogPendingRequests, reader: EventLogPendingRequests, clock: Clock
    ) -> None:
        id = asker.new_id(of(1))
        clock.move(WAIT)
        assert reader.is_valid_id(of(1), id)
        clock.move(pending_requests.MAX_CLOCK_SKEW_SECONDS + 1)
        assert not reader.is_valid_id(of(1), id)

    def test_an_id_from_a_wrong_clock_is_logged_once_a_minute(
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

    def test_remembered_ids_are_bounded(self, asker: EventLogPendingRequests, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pending_requests, "MAX_REMEMBERED_IDS", 5)
        for _ in range(20):
            asker.new_id(of(1))
        assert len(asker._handled_ids) == 5


def make(*secrets: str) -> EventLogPendingRequests:
    return EventLogPendingRequests(None, NameSigner(secrets, purpose="question"), timeout=WAIT)  # type: ignore[arg-type]


def of(pk: int) -> Any:
    return SimpleNamespace(pk=pk)
