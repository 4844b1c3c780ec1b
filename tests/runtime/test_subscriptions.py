"""The subscriptions of sessions, and their streams as views of the log."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from mcp_django import Server
from mcp_django.auth.authorization.policy import Policy
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.models import ResourceSubscription
from mcp_django.models import Session as Row
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, InvalidRequest, ResourceNotFound
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.runtime.concurrency import StreamLimiter
from mcp_django.runtime.events.event_log import EventDraft, EventLog
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.subscriptions import EventLogChangeFeed, SessionEventSource
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.eras.handshake import HandshakeEra
from mcp_django.server.ports import Overloaded
from mcp_django.signals import subscribed, unsubscribed
from tests.runtime.serving import eventually, real_threads, serve
from tests.server.client import FakeUser, make_principal, ports

pytestmark = real_threads
REVISION = "2025-11-25"


class SubscriptionServer:
    """One server with a session, in a process that follows the log."""

    def __init__(self, executor: LeasingExecutor, revision: str, most: int) -> None:
        self.executor = executor
        self.feeds = EventPublisher(executor=executor, layer=None, retention_seconds=600)
        self.changes = EventLogChangeFeed(
            "tests", publisher=self.feeds, executor=executor, limiter=StreamLimiter(10, 10), max_subscriptions=most
        )
        policy = Policy(executor)
        given = ports(executor=executor, authorizer=policy, change_feed=self.changes)
        self.server = Server("tests", "1", alias="tests", ports=given)
        self.revision = revision
        self.principal = make_principal("shop.view_order")
        self.view = SessionEventSource(self.server, publisher=self.feeds, executor=executor)

        @self.server.resource("note://open")
        async def open_note() -> str:
            return ""

        @self.server.resource("note://open/{part}")
        async def part_note(part: str) -> str:
            return ""

        @self.server.resource("note://secret", permission="shop.view_order")
        async def secret_note() -> str:
            return ""

        @self.server.tool
        async def anything() -> str:
            """Do something."""
            return ""

    async def session(self) -> ServerSession:
        row = Row(server="tests", revision=self.revision, owner=self.principal.key, expires=timezone.now())
        row.generate_key()
        await self.executor.run(row.save)
        return ServerSession(
            key="key",
            owner=self.principal.key,
            revision=REVISIONS[self.revision],
            client_info={},
            client_capabilities={},
            pk=row.pk,
        )

    def call(self, session: ServerSession) -> Call:
        era = HandshakeEra(self.server)
        message = jsonrpc.Request(1, "resources/subscribe", None)
        return era.create_call(message, self.connection(session), Outbox())

    def connection(self, session: ServerSession) -> Connection:
        return Connection(self.principal, session=session)

    async def open(self, session: ServerSession, after: int | None = None) -> "Stream":
        stream = Stream()
        after = await self.executor.run(EventLog().head) if after is None else after
        stream.view = await self.view.open(session, after, stream, connection=self.connection(session))
        return stream

    async def publish(self, kind: str, payload: Any, topic: str = "changes:tests") -> int:
        (event,) = await self.feeds.publish(EventDraft(topic, kind, payload))
        return event.seq


class Stream(list[Any]):
    """Records the messages of a stream."""

    view: Any

    def __call__(self, seq: int, message: bytes) -> None:
        self.append((seq, jsonrpc.loads(message)))

    @property
    def messages(self) -> list[Any]:
        return [message for _, message in self]

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.messages]

    @property
    def uris(self) -> list[str]:
        return [message["params"]["uri"] for message in self.messages]


def run(main: Callable[[SubscriptionServer], Awaitable[Any]], *, revision: str = REVISION, most: int = 100) -> Any:
    async def run_with_server(executor: LeasingExecutor) -> Any:
        return await main(SubscriptionServer(executor, revision, most))

    return serve(run_with_server)


def test_a_stream_carries_the_events_of_its_session_with_their_numbers() -> None:
    async def main(site: SubscriptionServer) -> None:
        one, other = await site.session(), await site.session()
        stream, elsewhere = await site.open(one), await site.open(other)
        message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
        seq = await site.publish("message", message, f"session:{one.pk}")
        await eventually(lambda: stream)
        assert stream == [(seq, message)]
        assert (elsewhere, stream.view.position) == ([], seq)

    run(main)


def test_a_session_receives_updates_of_its_resources_and_their_parts() -> None:
    async def main(site: SubscriptionServer) -> None:
        session = await site.session()
        await site.changes.subscribe(site.call(session), "note://open")
        stream = await site.open(session)
        for uri in ("note://open", "note://open/a", "note://opening", "note://other", "note://open/a"):
            await site.publish("updated", {"uri": uri})
        await eventually(lambda: len(stream) == 3)
        assert stream.uris == ["note://open", "note://open/a", "note://open/a"]
        assert stream.messages[0] == {
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"uri": "note://open"},
        }

    run(main)


def test_a_subscription_on_another_worker_takes_effect_in_an_open_stream() -> None:
    async def main(site: SubscriptionServer) -> None:
        session = await site.session()
        stream = await site.open(session)
        await site.publish("updated", {"uri": "note://open"})
        await site.changes.subscribe(site.call(session), "note://open")
        told = await site.publish("updated", {"uri": "note://open"})
        await site.changes.unsubscribe(site.call(session), "note://open")
        await site.publish("updated", {"uri": "note://open"})
        last = await site.publish("list_changed", {"kind": "tools"})
        await eventually(lambda: len(stream) == 2)
        assert [seq for seq, _ in stream] == [told, last]

    run(main)


def test_a_resumed_stream_replays_missed_events_since_the_subscription_in_order() -> None:
    async def main(site: SubscriptionServer) -> None:
        session = await site.session()
        start = EventLog()
        after = await site.executor.run(start.head)
        await site.publish("updated", {"uri": "note://open"})
        await site.changes.subscribe(site.call(session), "note://open")
        numbers = []
        for n in range(6):
            if n % 2:
                numbers.append(await site.publish("message", {"n": n}, f"session:{session.pk}"))
            else:
                numbers.append(await site.publish("updated", {"uri": "note://open"}))
        stream = await site.open(session, after)
        assert [seq for seq, _ in stream] == numbers
        again = await site.open(session, numbers[3])
        assert [seq for seq, _ in again] == numbers[4:]
        fresh = await site.open(session)
        assert fresh == []
        assert fresh.view.position >= numbers[-1]

    run(main)


def test_permission_is_checked_again_when_a_resource_changes() -> None:
    async def main(site: SubscriptionServer) -> None:
        session = await site.session()
        await site.changes.subscribe(site.call(session), "note://secret")
        await site.changes.subscribe(site.call(session), "note://open")
        stream = await site.open(session)
        site.principal = make_principal()
        blind = await site.open(session)
        for uri in ("note://secret", "note://open", "note://secret", "note://open"):
            await site.publish("updated", {"uri": uri})
        await eventually(lambda: len(stream) == 4 and len(blind) == 2)
        assert stream.uris == ["note://secret", "note://open", "note://secret", "note://open"]
        assert blind.uris == ["note://open", "note://open"]

    run(main)


def test_an_event_that_waits_for_a_permission_check_is_unseen_and_keeps_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(site: SubscriptionServer) -> None:
        session, gate = await site.session(), asyncio.Event()
        decide = site.server.ports.authorizer.decide

        async def decide_later(*given: Any) -> Any:
            await gate.wait()
            return await decide(*given)

        monkeypatch.setattr(site.server.ports.authorizer, "decide", decide_later)
        await site.changes.subscribe(site.call(session), "note://secret")
        stream = await site.open(session)
        first = await site.publish("updated", {"uri": "note://secret"})
        second = await site.publish("list_changed", {"kind": "tools"})
        probe = await site.open(await site.session(), first - 1)
        await eventually(lambda: probe)
        assert (stream, stream.view.position) == ([], first - 1)
        gate.set()
        await eventually(lambda: len(stream) == 2)
        assert [seq for seq, _ in stream] == [first, second]
        assert stream.view.position >= second

    run(main)


def test_a_missing_resource_is_not_announced() -> None:
    async def main(site: SubscriptionServer) -> None:
        session = await site.session()
        await site.changes.subscribe(site.call(session), "note://gone")
        stream = await site.open(session)
        await site.publish("updated", {"uri": "note://gone"})
        await site.publish("list_changed", {"kind": "resources"})
        await eventually(lambda: stream)
        assert stream.methods == ["notifications/resources/list_changed"]

    run(main)


def test_a_broadcast_is_delivered_unless_the_revision_defines_its_method() -> None:
    async def main(site: SubscriptionServer) -> None:
        stream = await site.open(await site.session())
        for method in ("notifications/subscriptions/acknowledged", "notifications/acme/news", "notifications/message"):
            await site.publish("broadcast", {"method": method, "params": {"data": 1}})
        await eventually(lambda: len(stream) == 2)
        assert stream.methods == ["notifications/acme/news", "notifications/message"]

    run(main)


def test_only_lists_that_the_server_has_are_announced() -> None:
    async def main(site: SubscriptionServer) -> None:
        stream = await site.open(await site.session())
        for kind in ("prompts", "tools", "resources"):
            await site.publish("list_changed", {"kind": kind})
        await eventually(lambda: len(stream) == 2)
        assert stream.methods == ["notifications/tools/list_changed", "notifications/resources/list_changed"]

    run(main)


def test_a_list_that_changed_for_one_user_is_announced_to_that_user() -> None:
    async def main(site: SubscriptionServer) -> None:
        stream = await site.open(await site.session())
        site.principal = DjangoPrincipal(issuer="tests", subject="seven", user=FakeUser(pk=7))
        theirs = await site.open(await site.session())
        for user in ("7", "8", "None"):
            await site.publish("list_changed", {"kind": "tools", "user": user})
        await site.publish("list_changed", {"kind": "resources"})
        await eventually(lambda: stream and len(theirs) == 2)
        assert stream.methods == ["notifications/resources/list_changed"]
        assert theirs.methods == ["notifications/tools/list_changed", "notifications/resources/list_changed"]

    run(main)


def test_a_resource_that_changed_for_one_owner_is_announced_to_that_owner() -> None:
    async def main(site: SubscriptionServer) -> None:
        session = await site.session()
        await site.changes.subscribe(site.call(session), "note://open")
        stream = await site.open(session)
        for owner in ("tests|nobody", "tests|somebody"):
            await site.publish("updated", {"uri": "note://open", "owner": owner})
        await site.publish("list_changed", {"kind": "tools"})
        await eventually(lambda: len(stream) == 2)
        assert stream.methods == ["notifications/resources/updated", "notifications/tools/list_changed"]
        assert stream.messages[0]["params"] == {"uri": "note://open"}

    run(main)


def test_a_new_stream_announces_changed_lists_first() -> None:
    class Memory:
        def save(self, session: ServerSession) -> None: ...

        async def load(self, session: ServerSession) -> dict[str, str]:
            return {"tools": "another", "prompts": "another", "resources": "another"}

    async def main(site: SubscriptionServer) -> None:
        site.server.bind(replace(site.server.ports, list_digests=Memory()))
        session = await site.session()
        last = await site.publish("list_changed", {"kind": "tools"})
        fresh = await site.open(session)
        assert [seq for seq, _ in fresh] == [last, last]
        assert fresh.methods == ["notifications/tools/list_changed", "notifications/resources/list_changed"]

    run(main)


def test_a_resumed_stream_announces_each_changed_list_once() -> None:
    """A release that was deployed in between is in no event of the log."""

    class Memory:
        def save(self, session: ServerSession) -> None: ...

        async def load(self, session: ServerSession) -> dict[str, str]:
            return {"tools": "another", "resources": "another"}

    async def main(site: SubscriptionServer) -> None:
        site.server.bind(replace(site.server.ports, list_digests=Memory()))
        session = await site.session()
        after = await site.publish("message", {"n": 1}, f"session:{session.pk}")
        resumed = await site.open(session, after)
        assert resumed.methods == ["notifications/tools/list_changed", "notifications/resources/list_changed"]
        assert [seq for seq, _ in resumed] == [after, after]

        last = await site.publish("list_changed", {"kind": "tools"})
        resumed = await site.open(session, after)
        assert resumed.methods == ["notifications/resources/list_changed", "notifications/tools/list_changed"]
        assert [seq for seq, _ in resumed] == [after, last]

    run(main)


def test_a_stopped_stream_receives_nothing_more() -> None:
    async def main(site: SubscriptionServer) -> None:
        session = await site.session()
        stream, other = await site.open(session), await site.open(session)
        stream.view.stop()
        stream.view.stop()
        await site.publish("list_changed", {"kind": "tools"})
        await eventually(lambda: other)
        assert stream == []

    run(main)


def test_a_repeated_subscription_counts_once() -> None:
    async def main(site: SubscriptionServer) -> None:
        call = site.call(await site.session())
        await site.changes.subscribe(call, "note://open")
        before = await site.executor.run(EventLog().head)
        await site.changes.subscribe(call, "note://open")
        await site.changes.unsubscribe(call, "note://secret")
        assert await site.executor.run(EventLog().head) == before

    run(main)
    assert ResourceSubscription.objects.count() == 1


def test_the_subscriptions_of_a_session_are_limited() -> None:
    async def main(site: SubscriptionServer) -> None:
        call = site.call(await site.session())
        await site.changes.subscribe(call, "note://open")
        await site.changes.subscribe(call, "note://secret")
        with pytest.raises(InvalidParams, match="limit of 2 subscriptions"):
            await site.changes.subscribe(call, "note://open/a")
        await site.changes.unsubscribe(call, "note://open")
        await site.changes.subscribe(call, "note://open/a")
        return call.session.pk if call.session else None

    session = run(main, most=2)
    assert set(ResourceSubscription.objects.get_start_events(session)) == {"note://secret", "note://open/a"}


def test_a_session_without_a_row_has_ended() -> None:
    async def main(site: SubscriptionServer) -> None:
        session = await site.session()
        await site.executor.run(Row.objects.all().delete)
        with pytest.raises(InvalidRequest, match="ended"):
            await site.changes.subscribe(site.call(session), "note://open")
        with pytest.raises(ResourceNotFound):
            await site.changes.subscribe(site.call(session), "note://\0")

    run(main)


def test_a_subscription_sends_a_signal() -> None:
    told: list[Any] = []

    def note(**about: Any) -> None:
        told.append(about)

    async def main(site: SubscriptionServer) -> None:
        call = site.call(await site.session())
        for signal in (subscribed, unsubscribed):
            signal.connect(note)
        try:
            await site.changes.subscribe(call, "note://open")
            await eventually(lambda: len(told) == 1)
            await site.changes.unsubscribe(call, "note://open")
            await eventually(lambda: len(told) == 2)
        finally:
            for signal in (subscribed, unsubscribed):
                signal.disconnect(note)
        assert [one["signal"] for one in told] == [subscribed, unsubscribed]
        about = {name: told[0][name] for name in ("server", "uri", "owner", "session")}
        assert about == {
            "server": "tests",
            "uri": "note://open",
            "owner": site.principal.key,
            "session": call.session and call.session.pk,
        }

    run(main)


def test_streams_are_counted_over_all_and_by_owner() -> None:
    listens = StreamLimiter(3, 2)
    for owner in ("a", "a"):
        listens.acquire(owner)
    with pytest.raises(Overloaded) as too_many_of_one:
        listens.acquire("a")
    listens.acquire("b")
    with pytest.raises(Overloaded) as too_many:
        listens.acquire("c")
    assert (too_many_of_one.value.status, too_many.value.status) == (429, 503)
    for owner in ("a", "a", "b"):
        listens.release(owner)
    assert len(listens) == 0
    for _ in range(3):
        listens.acquire("local")
