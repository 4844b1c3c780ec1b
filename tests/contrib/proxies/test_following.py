"""Changes of resources of a remote, forwarded to subscribers in every pair of eras."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server.subscriptions import ListenHandler, ResourceUpdated

from mcp_django import Principal, Server
from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies import upstream as following
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.protocol import jsonrpc, meta
from mcp_django.providers.mounts import Mount
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.subscriptions import upstream as streams
from mcp_django.server.subscriptions.listen import Subscription
from mcp_django.signals import clients_used
from tests.runtime.serving import real_threads
from tests.runtime.test_subscriptions import SubscriptionServer
from tests.runtime.test_subscriptions import run as run_subscription_server
from tests.server.client import STATELESS, make_principal, ports
from tests.server.listening import ChangeLog, taken
from tests.support.clock import Clock
from tests.support.waiting import eventually

from .remote import Remote, proxy_of

# The SDK warns of features that the newest revision deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
UPSTREAM = pytest.mark.parametrize("upstream", ["stateless", "handshake"])
ONE = "thing://one"


class SubscribableRemote(Remote):
    """A remote that notifies its subscribers of changes, and records them."""

    sends_updates = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.subscribed: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.refused = False
        self._sessions: list[Any] = []
        lowlevel: Any = self.server._lowlevel_server
        listen = ListenHandler(self.server._subscriptions)
        if not self.sends_updates:
            del lowlevel._request_handlers["subscriptions/listen"]
            return

        async def listened(ctx: Any, params: Any) -> Any:
            uris = Counter(params.notifications.resource_subscriptions or ())
            if uris and self.refused:
                raise MCPError(-32602, "no")
            self._note(uris)
            try:
                return await listen(ctx, params)
            finally:
                self.subscribed -= uris

        async def subscribe(ctx: Any, params: Any) -> types.EmptyResult:
            if self.refused:
                raise MCPError(-32602, "no")
            self._note(Counter([params.uri]))
            self._sessions.append(ctx.session)
            return types.EmptyResult()

        async def unsubscribe(ctx: Any, params: Any) -> types.EmptyResult:
            self.subscribed.pop(params.uri, None)  # it was one subscription, however often it was asked for
            return types.EmptyResult()

        lowlevel.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, listened)
        lowlevel.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
        lowlevel.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)

    def _note(self, uris: Counter[str]) -> None:
        self.subscribed += uris
        self.begun += uris

    async def update(self, uri: str) -> None:
        await self.server._subscriptions.publish(ResourceUpdated(uri=uri))
        for session in self._sessions[-1:]:
            await session.send_resource_updated(uri)

    async def is_subscribed_to(self, *uris: str) -> None:
        await eventually(lambda: set(self.subscribed) == set(uris))


class RefusingRemote(SubscribableRemote):
    sends_updates = False


class Listener:
    """A client of the stateless era: its streams."""

    def __init__(self, server: Server, principal: Principal | None = None) -> None:
        self.pipeline = Pipeline(server)
        self.connection = Connection(principal or make_principal(), shared_calls={})
        self.open: list[Subscription] = []

    async def listen(self, *uris: str) -> Subscription:
        id = len(self.open) + 1
        versions = {meta.PROTOCOL_VERSION: STATELESS, meta.CLIENT_CAPABILITIES: {}}
        params = {"notifications": {"resourceSubscriptions": list(uris)}, "_meta": versions}
        message = {"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params}
        raw = jsonrpc.loads(jsonrpc.dumps(message))
        work = self.pipeline.handle(self.pipeline.stateless, raw, self.connection, Outbox())
        assert isinstance(work, PendingResponse)
        await work.run
        assert self.connection.subscriptions is not None
        self.open.append(self.connection.subscriptions[id])
        (ack,) = await taken(self.open[-1]) or ()
        assert ack["params"]["notifications"] == {"resourceSubscriptions": list(uris)}
        return self.open[-1]


async def read_uris(stream: Subscription) -> list[str]:
    """Return the URIs of the next notifications of a stream."""
    awake = asyncio.Event()
    stream.wake = awake.set
    while not (messages := await taken(stream)):
        await awake.wait()
        awake.clear()
    return [message["params"]["uri"] for message in messages]


def server_of(*proxies: Proxy, **given: Any) -> Server:
    return Server("tests", "1", ports=ports(change_feed=ChangeLog()), providers=proxies, **given)


@UPSTREAM
async def test_an_open_stream_is_notified_of_changes_of_a_remote_resource(upstream: str) -> None:
    remote = SubscribableRemote(era=upstream)
    stream = await Listener(server_of(proxy_of(remote))).listen(ONE)
    assert set(remote.subscribed) == {ONE}
    await remote.update(ONE)
    assert await read_uris(stream) == [ONE]
    stream.cancel()
    await remote.is_subscribed_to()


@UPSTREAM
async def test_listeners_share_one_subscription_which_ends_with_the_last(upstream: str) -> None:
    remote = SubscribableRemote(era=upstream)
    server = server_of(proxy_of(remote))
    one, other = await Listener(server).listen(ONE), await Listener(server).listen(ONE, "thing://by/me")
    await remote.update(ONE)
    assert (await read_uris(one), await read_uris(other)) == ([ONE], [ONE])
    one.cancel()
    await remote.is_subscribed_to(ONE, "thing://by/me")
    await remote.update("thing://by/me")
    assert await read_uris(other) == ["thing://by/me"]
    other.close()
    while await other.take_messages() is not None:
        pass
    await remote.is_subscribed_to()
    if upstream == "handshake":
        assert remote.begun == {ONE: 1, "thing://by/me": 1}


async def test_servers_on_a_shared_connection_end_their_own_subscriptions_only() -> None:
    remote = SubscribableRemote(era="handshake")
    source = TargetSource("r", remote, protocol_version="handshake", max_retries=0)
    one, other = (server_of(Proxy(source, permission="any", prefix=name)) for name in ("a", "b"))
    first, second = await Listener(one).listen(ONE), await Listener(other).listen(ONE)
    first.cancel()
    third = await Listener(one).listen("thing://by/me")  # subscriptions that the first one ended have ended by now
    await remote.update(ONE)
    assert await read_uris(second) == [ONE]
    for stream in (second, third):
        stream.cancel()
    await remote.is_subscribed_to()


async def test_notifications_have_the_prefixed_uris() -> None:
    remote = SubscribableRemote()
    inner = server_of(proxy_of(remote, uri_prefix="far"))
    server = server_of(mounts=[Mount(inner, prefix="in", uri_prefix="in")])
    stream = await Listener(server).listen("in+far+thing://one")
    assert set(remote.subscribed) == {ONE}
    await remote.update(ONE)
    assert await read_uris(stream) == ["in+far+thing://one"]


async def test_changes_of_parts_notify_the_resource_and_floods_are_throttled(clock: Clock) -> None:
    remote = SubscribableRemote(era="handshake")
    stream = await Listener(server_of(proxy_of(remote))).listen("thing://by/me", ONE)
    await remote.update("thing://by/me/page/2")
    assert await read_uris(stream) == ["thing://by/me"]
    for _ in range(3):
        await remote.update("thing://by/me")
    await remote.update(ONE)
    assert await read_uris(stream) == [ONE]


async def test_changes_within_an_interval_are_notified_at_its_end(clock: Clock) -> None:
    remote = SubscribableRemote(era="handshake")
    stream = await Listener(server_of(proxy_of(remote))).listen(ONE)
    await remote.update(ONE)
    assert await read_uris(stream) == [ONE]
    await remote.update(ONE)
    reading = asyncio.create_task(read_uris(stream))
    await clock.settle()
    assert not reading.done()
    await clock.advance(following.NOTIFY_INTERVAL_SECONDS)
    assert await reading == [ONE]


@UPSTREAM
async def test_a_remote_without_the_capability_gets_no_subscription(upstream: str) -> None:
    remote = RefusingRemote(era=upstream)
    stream = await Listener(server_of(proxy_of(remote))).listen(ONE)
    assert not stream.is_closed
    assert not remote.begun


async def test_a_remote_that_refuses_subscriptions_breaks_no_stream() -> None:
    remote = SubscribableRemote(era="handshake")
    remote.refused = True
    listener = Listener(server_of(proxy_of(remote)))
    refused = await listener.listen("thing://by/me")
    remote.refused = False
    stream = await listener.listen(ONE)
    await remote.update(ONE)
    assert await read_uris(stream) == [ONE]
    assert not refused.is_closed


@pytest.mark.parametrize("bound", ["MAX_RESOURCES", "MAX_RESOURCES_PER_CALLER"])
async def test_subscriptions_are_bounded(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, bound, 2)
    remote = SubscribableRemote(era="handshake")
    stream = await Listener(server_of(proxy_of(remote))).listen(*(f"thing://by/{n}" for n in range(4)))
    assert len(remote.subscribed) == 2
    stream.cancel()
    await remote.is_subscribed_to()


async def test_subscriptions_of_one_caller_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_RESOURCES_PER_CALLER", 2)
    remote = SubscribableRemote(era="handshake")
    server = server_of(proxy_of(remote))
    await Listener(server, make_principal(name="ada")).listen(*(f"thing://by/{n}" for n in range(4)))
    stream = await Listener(server, make_principal(name="bob")).listen(ONE)
    await remote.update(ONE)
    assert await read_uris(stream) == [ONE]


@UPSTREAM
async def test_after_an_outage_a_resource_is_subscribed_again_and_notified(upstream: str, clock: Clock) -> None:
    remote = SubscribableRemote(era=upstream)
    stream = await Listener(server_of(proxy_of(remote))).listen(ONE)
    await remote.go_down()
    before = remote.begun[ONE]
    remote.down = False
    reading = asyncio.create_task(read_uris(stream))
    while not reading.done():
        await clock.advance(following.CHECK_INTERVAL_SECONDS)
    assert await reading == [ONE]
    assert remote.begun[ONE] > before
    await clock.advance(following.NOTIFY_INTERVAL_SECONDS)
    await remote.update(ONE)
    assert await read_uris(stream) == [ONE]


async def test_each_caller_is_notified_through_its_own_credential() -> None:
    vaults = {name: SubscribableRemote(era="handshake") for name in ("ada", "bob")}

    class CredentialTarget(TargetSource):
        def create_client(self, user: Any, headers: Any, answering: Any, tools: bool) -> Any:
            return TargetSource("r", vaults[headers["X"]], protocol_version="handshake").create_client(
                None, None, {}, False
            )

    proxy = Proxy(
        CredentialTarget("r", vaults["ada"]),
        permission="any",
        credentials=lambda ctx: {"X": ctx.principal.subject},
        prefix="r",
    )
    server = server_of(proxy)
    ada = await Listener(server, make_principal(name="ada")).listen(ONE)
    bob = await Listener(server, make_principal(name="bob")).listen(ONE)
    await vaults["ada"].update(ONE)
    assert await read_uris(ada) == [ONE]
    assert await taken(bob) == []
    ada.cancel()
    await vaults["ada"].is_subscribed_to()
    assert set(vaults["bob"].subscribed) == {ONE}


async def test_a_client_that_leaves_during_the_subscription_leaves_none() -> None:
    remote = SubscribableRemote(era="handshake")
    server = server_of(proxy_of(remote))
    await (await Listener(server).listen("thing://by/me")).take_messages()
    entered = asyncio.Event()
    lowlevel: Any = remote.server._lowlevel_server

    async def hang(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "resources/subscribe":
            entered.set()
            await remote.gate.wait()
        return await call_next(ctx)

    lowlevel.middleware.append(hang)
    listening = asyncio.ensure_future(Listener(server).listen(ONE))
    await entered.wait()
    listening.cancel()
    await asyncio.wait({listening})
    remote.gate.set()
    await remote.is_subscribed_to("thing://by/me")


async def test_a_local_resource_of_the_same_uri_is_not_subscribed_at_the_remote() -> None:
    remote = SubscribableRemote()
    server = server_of(proxy_of(remote))

    @server.resource(ONE)
    async def own() -> str:
        return "ours"

    await Listener(server).listen(ONE)
    assert not remote.begun


def run(main: Callable[[SubscriptionServer], Awaitable[Any]], remote: Remote) -> None:
    """Run a coroutine on a server that has a proxy, with sessions in rows."""

    async def closing(stage: SubscriptionServer) -> None:
        closes: list[Callable[[], Awaitable[None]]] = []

        def note(close: Callable[[], Awaitable[None]], **_: Any) -> None:
            closes.append(close)

        stage.server.providers += (proxy_of(remote),)
        clients_used.connect(note)
        try:
            await main(stage)
        finally:
            clients_used.disconnect(note)
            for close in closes:
                await close()

    run_subscription_server(closing)


@real_threads
@UPSTREAM
def test_a_session_is_notified_while_its_stream_is_open(upstream: str) -> None:
    remote = SubscribableRemote(era=upstream)

    async def main(stage: SubscriptionServer) -> None:
        session = await stage.session()
        stream = await stage.open(session)
        await stage.changes.subscribe(stage.call(session), ONE)
        await remote.is_subscribed_to(ONE)
        await eventually(lambda: bool(stream.view._upstream._stops))
        await remote.update(ONE)
        await eventually(lambda: bool(stream))
        assert stream.messages == [
            {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": ONE}}
        ]
        assert stream[0][0] <= stream.view.position
        await stage.changes.unsubscribe(stage.call(session), ONE)
        await remote.is_subscribed_to()
        stream.view.stop()

    run(main, remote)


@real_threads
def test_a_later_stream_takes_over_and_is_notified_once_of_missed_changes() -> None:
    remote = SubscribableRemote(era="handshake")

    async def main(stage: SubscriptionServer) -> None:
        session = await stage.session()
        await stage.changes.subscribe(stage.call(session), ONE)
        assert not remote.begun  # no stream was open
        stream = await stage.open(session)
        await eventually(lambda: bool(stream))
        assert (stream.uris, set(remote.subscribed)) == ([ONE], {ONE})
        stream.view.stop()
        await remote.is_subscribed_to()
        again = await stage.open(session, stream[-1][0])
        await eventually(lambda: bool(again))
        assert (again.uris, set(remote.subscribed)) == ([ONE], {ONE})
        again.view.stop()
        await remote.is_subscribed_to()

    run(main, remote)


@real_threads
def test_a_remote_that_was_down_at_the_start_is_subscribed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOKUP_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("mcp_django.contrib.proxies.catalog.catalog_cache.RETRY_DELAY_SECONDS", 0.0)
    remote = SubscribableRemote(era="handshake", down=True)

    async def main(stage: SubscriptionServer) -> None:
        session = await stage.session()
        await stage.changes.subscribe(stage.call(session), ONE)
        stream = await stage.open(session)
        await eventually(lambda: bool(stream.view._upstream._tasks))
        remote.down = False
        await eventually(lambda: bool(stream))
        assert set(remote.subscribed) == {ONE}
        stream.view.stop()
        await remote.is_subscribed_to()

    run(main, remote)
