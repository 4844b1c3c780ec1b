"""Streams of changes in the engine, without HTTP: as a transport with one channel for all messages serves them."""

import asyncio
from typing import Any

import pytest
from django.core.exceptions import ObjectDoesNotExist

from mcp_django import Principal
from mcp_django.protocol.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MCPError,
    MethodNotFound,
    ResourceNotFound,
)
from mcp_django.protocol.headers import Headers
from mcp_django.server.calls.call import Call
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Outcome, Overloaded
from mcp_django.server.server import Server
from mcp_django.server.subscriptions.filter import SubscriptionFilter, covering_uris
from mcp_django.server.subscriptions.listen import MAX_CLIENT_CHARACTERS, MAX_PENDING_PARTS, RETRY_DELAY_SECONDS
from tests.server.client import STATELESS, PipelineClient, ports
from tests.server.listening import ChangeLog, ListenClient, taken

ID = "io.modelcontextprotocol/subscriptionId"


async def test_a_client_cancels_a_stream_by_the_id_of_its_request():
    peer = ListenClient()
    one, other = await peer.listen(0, toolsListChanged=True), await peer.listen("0", toolsListChanged=True)
    await peer.notify("notifications/cancelled", {"requestId": 0, "reason": "enough"})
    assert one.is_closed
    assert await taken(one) is None
    assert not other.is_closed
    for id in (0, 7, None, [], True):
        await peer.notify("notifications/cancelled", {"requestId": id})
    assert not other.is_closed
    assert peer.connection.subscriptions == {"0": other}
    assert peer.watch.ended[-1] != (0, Outcome.OK)
    assert (0, Outcome.CANCELLED) in peer.watch.ended


async def test_on_a_shared_channel_the_server_ends_with_a_result_and_a_cancellation():
    peer = ListenClient()
    subscription = await peer.listen("x", toolsListChanged=True)
    await taken(subscription)
    subscription.close()
    result, cancelled = await taken(subscription) or ()
    assert (result["id"], result["result"]["resultType"]) == ("x", "complete")
    assert result["result"]["_meta"][ID] == "x"
    assert (cancelled["method"], cancelled["params"]) == ("notifications/cancelled", {"requestId": "x"})
    assert await taken(subscription) is None


async def test_over_http_the_result_ends_the_stream():
    peer = ListenClient(
        headers=Headers([(b"mcp-protocol-version", STATELESS.encode()), (b"mcp-method", b"subscriptions/listen")])
    )
    subscription = await peer.listen(3)
    subscription.close()
    acknowledged, result = await taken(subscription) or ()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert result["result"]["_meta"][ID] == 3


async def test_waiting_changes_are_sent_before_the_end():
    peer = ListenClient()
    subscription = await peer.listen(toolsListChanged=True, resourceSubscriptions=["note://secret"])
    peer.log.deliver("updated", uri="note://secret")
    peer.log.deliver("list_changed", kind="tools")
    subscription.close()
    methods = [message.get("method") for message in await taken(subscription) or ()]
    assert methods == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "notifications/resources/updated",
        None,
        "notifications/cancelled",
    ]
    assert (1, Outcome.OK) in peer.watch.ended


async def test_an_id_in_use_is_refused_and_its_stream_goes_on():
    peer = ListenClient()
    subscription = await peer.listen(1, toolsListChanged=True)
    work = peer.send("subscriptions/listen", {"notifications": {}}, 1)
    with pytest.raises(InvalidRequest, match="still running"):
        await work.run
    peer.log.deliver("list_changed", kind="tools")
    assert len(await taken(subscription) or ()) == 2
    assert len(peer.log.open) == 1


async def test_the_log_has_one_listener_while_clients_are_subscribed():
    peer = ListenClient()
    peer.log.ready.clear()
    opening = [asyncio.ensure_future(peer.listen(id, toolsListChanged=True)) for id in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    peer.log.ready.set()
    subscriptions = await asyncio.gather(*opening)
    assert len(peer.log.listeners) == 1
    for subscription in subscriptions:
        assert len(peer.log.listeners) == 1
        subscription.cancel()
        subscription.cancel()
    await asyncio.sleep(0)
    assert (peer.log.listeners, peer.log.open) == ([], [])
    await peer.listen(9)
    assert len(peer.log.listeners) == 1


async def test_a_disconnect_before_the_listener_is_added_releases_the_stream():
    peer = ListenClient()
    peer.log.ready.clear()
    opening = asyncio.ensure_future(peer.listen(1, toolsListChanged=True))
    for _ in range(5):
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    peer.log.ready.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (peer.log.listeners, peer.log.open) == ([], [])
    assert peer.watch.ended == [(1, Outcome.CANCELLED)]


async def test_a_disconnect_while_the_listener_is_added_releases_the_stream():
    peer = ListenClient()
    peer.log.ready.clear()
    opening = asyncio.ensure_future(peer.listen(1, toolsListChanged=True))
    for _ in range(5):
        await asyncio.sleep(0)
    peer.log.ready.set()
    while not peer.log.listeners:
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await asyncio.sleep(0)
    assert (peer.log.listeners, peer.log.open) == ([], [])


async def test_a_failed_listener_is_tried_again_by_the_next_client(monkeypatch):
    peer = ListenClient()
    follow = peer.log.add_listener

    async def fails(deliver: Any) -> Any:
        raise OSError("no log")

    monkeypatch.setattr(peer.log, "add_listener", fails)
    with pytest.raises(InternalError):
        await peer.listen(1)
    assert peer.log.open == []
    monkeypatch.setattr(peer.log, "add_listener", follow)
    await peer.listen(2)
    assert len(peer.log.listeners) == 1


async def test_over_a_limit_the_stream_is_refused_and_observed():
    peer = ListenClient()
    peer.log.full = True
    work = peer.send("subscriptions/listen", {"notifications": {}}, 1)
    assert work.call_count == 0
    with pytest.raises(Overloaded):
        await work.run
    assert peer.watch.ended == [(1, Outcome.OVERLOADED)]


async def test_middleware_sees_the_request_and_may_refuse_it_before_or_after():
    when = "before"

    async def refuse(call: Any, call_next: Any) -> Any:
        if when == "before":
            raise InvalidParams("not here")
        result = await call_next(call)
        if when == "after":
            raise InvalidParams("not so")
        return {**result, "_meta": {**result["_meta"], "acme/note": 1}}

    peer = ListenClient(middleware=[refuse])
    for _ in range(2):
        with pytest.raises(MCPError):
            await peer.listen(1, toolsListChanged=True)
        assert (peer.log.open, peer.connection.subscriptions or {}) == ([], {})
        when = "after"
    assert [outcome for _, outcome in peer.watch.ended] == [Outcome.ERROR, Outcome.ERROR]
    assert peer.log.announced == []
    when = "never"
    subscription = await peer.listen(1, toolsListChanged=True)
    subscription.close()
    *_, result, _ = await taken(subscription) or ()
    assert result["result"]["_meta"]["acme/note"] == 1


async def test_a_signal_is_sent_when_a_stream_for_resources_opens_and_ends():
    peer = ListenClient()
    subscription = await peer.listen(1, resourceSubscriptions=["note://open", "note://nowhere"])
    await peer.listen(2, toolsListChanged=True)
    subscription.cancel()
    assert peer.log.announced == [(True, ("note://open",)), (False, ("note://open",))]


async def test_a_reader_that_never_reads_keeps_few_changes():
    """Changes of too many parts are replaced by one of their resource."""
    peer = ListenClient()
    subscription = await peer.listen(1, toolsListChanged=True, resourceSubscriptions=["note://open"])
    await taken(subscription)
    for n in range(10 * MAX_PENDING_PARTS):
        peer.log.deliver("updated", uri=f"note://open/{n}")
        peer.log.deliver("list_changed", kind="tools")
    messages = await taken(subscription) or []
    uris = [message["params"].get("uri") for message in messages[1:]]
    assert messages[0]["method"] == "notifications/tools/list_changed"
    assert len(messages) <= MAX_PENDING_PARTS + 3
    assert "note://open" in uris
    assert len(uris) == len(set(uris))


async def test_each_stream_is_woken_once_for_its_changes():
    peer = ListenClient()
    one, other = await peer.listen(1, toolsListChanged=True), await peer.listen(2, resourcesListChanged=True)
    woken: list[int] = []
    one.wake, other.wake = lambda: woken.append(1), lambda: woken.append(2)
    peer.log.deliver("list_changed", kind="tools")
    peer.log.deliver("list_changed", kind="tools")
    peer.log.deliver("list_changed", kind="prompts")
    peer.log.deliver("broadcast", method="notifications/acme", params={})
    assert woken == [1]


async def test_permission_is_not_checked_for_a_public_resource(monkeypatch, clock):
    peer = ListenClient()
    uris = ["note://open", "note://secret", "note://open/a"]
    subscription = await peer.listen(1, resourceSubscriptions=uris)
    asked: list[str] = []

    async def decide(principal: Any, primitive: Any) -> Any:
        asked.append(primitive.key)
        raise Overloaded

    original = peer.server.ports.authorizer.decide
    monkeypatch.setattr(peer.server.ports.authorizer, "decide", decide)
    for uri in uris:
        peer.log.deliver("updated", uri=uri)
    sent = [message["params"].get("uri") for message in (await taken(subscription) or [])[1:]]
    assert (sent, asked) == (["note://open", "note://open/a"], ["note://secret"])
    # The policy that was overloaded is asked again.
    monkeypatch.setattr(peer.server.ports.authorizer, "decide", original)
    news = asyncio.Event()
    subscription.wake = news.set
    await clock.advance(RETRY_DELAY_SECONDS - 0.001)
    assert not news.is_set()
    await clock.advance(0.001)
    assert news.is_set()
    assert [message["params"]["uri"] for message in await taken(subscription) or []] == ["note://secret"]


async def test_no_update_is_sent_for_a_removed_or_hidden_resource():
    peer = ListenClient()
    subscription = await peer.listen(1, resourceSubscriptions=["note://secret", "note://open"])
    await taken(subscription)
    peer.server.registry.resources.remove("note://open")
    peer.connection.principal.user.permissions = ()
    peer.connection.principal._permissions._results.clear()
    peer.log.deliver("updated", uri="note://secret")
    peer.log.deliver("updated", uri="note://open")
    assert await taken(subscription) == []


async def test_an_open_stream_keeps_only_the_client_name_of_its_request():
    peer = ListenClient(
        headers=Headers([(b"mcp-protocol-version", STATELESS.encode()), (b"mcp-method", b"subscriptions/listen")])
    )
    client = {"name": "Claude", "version": "2" * 1000, "title": "Claude Desktop"}
    subscription = await peer.listen(1, client=client, toolsListChanged=True)
    call = subscription.call
    assert call.message.params is None
    assert call.connection is not peer.connection
    assert call.connection.headers is None
    assert (call.meta, call.capabilities) == ({}, {})
    assert call.client_info == {"name": "Claude", "version": "2" * MAX_CLIENT_CHARACTERS}
    other = await peer.listen(2, client=client, promptsListChanged=True)
    assert other.call.client_info is call.client_info
    nameless = await peer.listen(3, client={"name": 5}, promptsListChanged=True)
    assert nameless.call.client_info == {"name": "", "version": ""}


async def test_a_server_without_a_change_feed_has_no_subscriptions():
    server = Server("tests", "1", ports=ports())

    @server.tool
    async def anything() -> str:
        """Do something."""
        return ""

    peer = ListenClient()
    peer.server, peer.pipeline = server, Pipeline(server)
    with pytest.raises(MethodNotFound):
        peer.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, 1)


def test_a_filter_is_serialized_as_it_was_parsed():
    wire = {"toolsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": ["b", "a"]}
    given = {**wire, "promptsListChanged": False, "resourceSubscriptions": ["b", "a", "b"], "taskIds": []}
    assert SubscriptionFilter.parse({"notifications": given}, max_uris=3).to_wire() == wire
    assert SubscriptionFilter().to_wire() == {}


def test_a_part_of_a_resource_is_a_uri_below_it(subtests: pytest.Subtests) -> None:
    cases = [
        ("note://a", "note://a", True),
        ("note://a/b", "note://a", True),
        ("note://a/b/c", "note://a", True),
        ("note://a/b", "note://a/", True),
        ("note://a/", "note://a", True),
        ("note://ab", "note://a", False),
        ("note://a", "note://a/b", False),
        ("note://a?x=1", "note://a", False),
        ("note://b/note://a", "note://a", False),
    ]
    for uri, under, is_told in cases:
        with subtests.test(uri=uri, under=under, is_told=is_told):
            assert (under in covering_uris(uri)) is is_told


async def test_a_change_for_one_owner_is_sent_to_that_owner_only() -> None:
    peer = ListenClient()
    stream = await peer.listen(resourceSubscriptions=["note://open"])
    await stream.take_messages()
    for owner in ("tests|nobody", "tests|somebody|", "somebody"):
        peer.log.deliver("updated", uri="note://open", owner=owner)
    assert await stream.take_messages() == []
    peer.log.deliver("updated", uri="note://open", owner="tests|somebody")
    assert len(await stream.take_messages() or ()) == 1


async def test_a_probed_resource_exists_where_its_handler_returns_content():
    peer = ListenClient()
    rows = {"a": "somebody", "b": "else", "c": "somebody"}

    @peer.server.resource("row://{key}", check_exists=True)
    def row(key: str, principal: Principal) -> str | None:
        if key == "broken":
            raise KeyError(key)
        return key if principal.subject == rows[key] else None  # type: ignore[attr-defined]

    asked = [f"row://{key}" for key in (*rows, "broken")]
    subscription = await peer.listen(1, resourceSubscriptions=asked)
    [acknowledged] = await taken(subscription) or []
    assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": ["row://a", "row://c"]}
    rows["a"] = "else"
    for uri in asked:
        peer.log.deliver("updated", uri=uri)
    assert [sent["params"]["uri"] for sent in await taken(subscription) or []] == ["row://c"]


async def test_a_session_subscribes_to_existing_resources_only():
    changes = ChangeLog()
    server = Server("tests", "1", ports=ports(change_feed=changes))
    taken_up: list[str] = []

    async def subscribe(call: Call, uri: str) -> None:
        taken_up.append(uri)

    changes.subscribe = subscribe  # type: ignore[method-assign]

    @server.resource("row://{key}", check_exists=True)
    async def row(key: str) -> str | None:
        if key == "busy":
            raise Overloaded
        if key == "broken":
            raise KeyError(key)
        if key == "gone":
            raise ObjectDoesNotExist
        return key if key == "mine" else None

    @server.resource("closed://{key}", check_exists=True, guards=[lambda ctx: False])
    async def closed(key: str) -> str:
        return key

    peer = PipelineClient(server, version="2025-11-25")
    await peer.request("resources/subscribe", {"uri": "row://mine"})
    for uri in ("row://yours", "row://gone", "closed://mine"):
        with pytest.raises(ResourceNotFound):
            await peer.request("resources/subscribe", {"uri": uri})
    with pytest.raises(InternalError):
        await peer.request("resources/subscribe", {"uri": "row://broken"})
    with pytest.raises(Overloaded):
        await peer.request("resources/subscribe", {"uri": "row://busy"})
    assert taken_up == ["row://mine"]
