"""`subscriptions/listen` (stateless era, basic/patterns/subscriptions)."""

import asyncio
import logging
from typing import Any

import pytest

from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.server.subscriptions.listen import Subscription
from mcp_django.wiring import get_services
from tests.interaction.channel import ChannelExchange
from tests.interaction.transports import contract, contract_with_headers, on_http
from tests.interaction.verifiers import SCOPES
from tests.interaction.wire import Exchange
from tests.support.waiting import eventually

ID = "io.modelcontextprotocol/subscriptionId"
ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


async def change(kind: str, payload: Any, server: str = "interaction") -> None:
    await get_services().event_publisher.publish(EventDraft(f"changes:{server}", kind, payload))


async def notify_updated(uri: str) -> None:
    await change("updated", {"uri": uri})


def listen(client, /, *, id=None, headers=None, **wanted) -> Exchange:
    return client.begin("subscriptions/listen", {"notifications": wanted}, id=id, headers=headers)


async def acknowledged(exchange: Exchange) -> dict[str, Any]:
    message = await exchange.message()
    assert message["method"] == ACKNOWLEDGED
    return message["params"]["notifications"]


async def disconnect(exchange: Exchange) -> None:
    exchange.leave()
    await exchange.end()
    if isinstance(exchange, ChannelExchange):
        await exchange.hang_up()
    await eventually(lambda: not len(get_services().stream_limiter))


@pytest.fixture(autouse=True)
def _no_open_streams():
    yield
    assert len(get_services().stream_limiter) == 0


@contract
async def test_the_first_message_acknowledges_the_filter(modern):
    exchange = listen(modern(), id=7, **ALL, resourceSubscriptions=["note://static"])
    assert await exchange.speaks()
    assert await exchange.message() == {
        "jsonrpc": "2.0",
        "method": ACKNOWLEDGED,
        "params": {"_meta": {ID: 7}, "notifications": {**ALL, "resourceSubscriptions": ["note://static"]}},
    }
    await disconnect(exchange)


async def test_everything_on_a_stream_carries_the_id_of_its_request_in_the_same_type(modern, subtests):
    for id in [0, "", "0", -1, "a\nb"]:
        with subtests.test(id=id):
            exchange = listen(modern(), id=id, toolsListChanged=True, resourceSubscriptions=["note://static"])
            first = await exchange.message()
            await change("list_changed", {"kind": "tools"})
            second = await exchange.message()
            await notify_updated("note://static")
            third = await exchange.message()
            ids = [message["params"]["_meta"][ID] for message in (first, second, third)]
            assert ids == [id, id, id]
            assert {type(one) for one in ids} == {type(id)}
            assert [second["method"], third["method"]] == [
                "notifications/tools/list_changed",
                "notifications/resources/updated",
            ]
            await disconnect(exchange)


@contract
async def test_only_requested_changes_are_sent(modern):
    exchange = listen(modern(), promptsListChanged=True, toolsListChanged=False, resourceSubscriptions=["note://both"])
    assert await acknowledged(exchange) == {"promptsListChanged": True, "resourceSubscriptions": ["note://both"]}
    await change("list_changed", {"kind": "tools"})
    await notify_updated("note://static")
    await change("broadcast", {"method": "notifications/acme/news", "params": {}})
    await change("list_changed", {"kind": "prompts"}, server="pages")
    await notify_updated("note://both")
    await change("list_changed", {"kind": "prompts"})
    told = [(await exchange.message())["method"] for _ in range(2)]
    assert told == ["notifications/resources/updated", "notifications/prompts/list_changed"]
    await disconnect(exchange)


async def test_an_update_of_a_part_of_a_resource_has_its_own_uri(modern):
    exchange = listen(modern(), resourceSubscriptions=["note://both"])
    await acknowledged(exchange)
    for uri in ("note://bothering", "note://by/both", "note://numbered/1"):
        await notify_updated(uri)
    await notify_updated("note://both")
    assert (await exchange.message())["params"]["uri"] == "note://both"
    await disconnect(exchange)


async def test_undeliverable_changes_are_not_acknowledged(modern):
    uris = ["note://nowhere", "note://guarded", "note://static", "note://numbered/seven", "", "note://static"]
    exchange = listen(modern(token="alice"), resourceSubscriptions=uris, taskIds=["t"], novelty=True)
    assert await acknowledged(exchange) == {"resourceSubscriptions": ["note://static"]}
    await disconnect(exchange)
    exchange = listen(modern(token="root"), resourceSubscriptions=uris)
    assert await acknowledged(exchange) == {"resourceSubscriptions": ["note://guarded", "note://static"]}
    await disconnect(exchange)


async def test_a_server_acknowledges_only_the_lists_it_has(modern):
    exchange = listen(modern(server="pages"), **ALL)
    acknowledgement = await acknowledged(exchange)
    assert acknowledgement == {"toolsListChanged": True, "resourcesListChanged": True}
    await disconnect(exchange)


async def test_an_empty_filter_opens_a_stream(modern):
    exchange = listen(modern())
    assert await acknowledged(exchange) == {}
    await disconnect(exchange)


async def test_permission_is_checked_before_each_update(modern, monkeypatch):
    client = modern(token="root")
    exchange = listen(client, resourceSubscriptions=["note://guarded", "note://static"])
    await acknowledged(exchange)
    await notify_updated("note://guarded")
    assert (await exchange.message())["params"]["uri"] == "note://guarded"
    monkeypatch.setattr("mcp_django.auth.principal._CachedPermissions.get_cached", lambda self, permission: False)
    await notify_updated("note://guarded")
    await notify_updated("note://static")
    assert (await exchange.message())["params"]["uri"] == "note://static"
    await disconnect(exchange)


async def test_streams_of_one_client_have_separate_ids(modern):
    client = modern()
    one, other = listen(client, id=1, toolsListChanged=True), listen(client, id="1", toolsListChanged=True)
    for exchange in (one, other):
        await acknowledged(exchange)
    await change("list_changed", {"kind": "tools"})
    ids = [(await exchange.message())["params"]["_meta"][ID] for exchange in (one, other)]
    assert ids == [1, "1"]
    for exchange in (one, other):
        exchange.leave()
        await exchange.end()


async def test_clients_with_the_same_id_get_only_their_own_changes(modern):
    alice, bob = modern(token="alice"), modern(token="bob")
    one = listen(alice, id=1, toolsListChanged=True)
    other = listen(bob, id=1, promptsListChanged=True)
    for exchange in (one, other):
        await acknowledged(exchange)
    await change("list_changed", {"kind": "prompts"})
    await change("list_changed", {"kind": "tools"})
    assert (await one.message())["method"] == "notifications/tools/list_changed"
    assert (await other.message())["method"] == "notifications/prompts/list_changed"
    for exchange in (one, other):
        exchange.leave()
        await exchange.end()


async def test_the_response_is_a_stream_for_every_accept_header(modern, subtests):
    for accept in ["application/json", "application/json, text/event-stream;q=0.1", "*/*"]:
        with subtests.test(accept=accept):
            exchange = listen(modern(), headers={"accept": accept}, toolsListChanged=True)
            _, headers = await exchange.started()
            assert headers["content-type"] == "text/event-stream"
            await acknowledged(exchange)
            await disconnect(exchange)


async def test_an_invalid_filter_is_refused(modern, subtests):
    for params in [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": {"toolsListChanged": 1}},
        {"notifications": {"promptsListChanged": "true"}},
        {"notifications": {"resourceSubscriptions": "note://static"}},
        {"notifications": {"resourceSubscriptions": [1]}},
        {"notifications": {"resourceSubscriptions": None}},
    ]:
        with subtests.test(params=params):
            assert (await modern().request("subscriptions/listen", params)).refused(400, -32602)


async def test_the_number_of_resources_in_a_filter_is_limited(limits, modern):
    limits(SUBSCRIPTIONS=2)
    uris = [f"note://numbered/{n}" for n in range(3)]
    reply = await modern().request("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    assert reply.refused(400, -32602)
    assert "resourceSubscriptions must have at most 2 entries, not 3" in reply.error["message"]


@contract_with_headers
async def test_repeated_changes_are_sent_once_to_a_slow_client(limits, modern, transport):
    limits(SEND_BUFFER=2)
    exchange = listen(modern(), toolsListChanged=True, resourceSubscriptions=["note://static", "note://both"])
    await acknowledged(exchange)
    exchange.stop_reading()
    for _ in range(50):
        await change("list_changed", {"kind": "tools"})
        await notify_updated("note://static")
    await notify_updated("note://both")
    exchange.read_on()
    told = []
    while not told or told[-1] != "note://both":
        message = await exchange.message()
        told.append(message["params"].get("uri", message["method"]))
    most = 2 if transport.http else 2 + 2  # and those that wait for the whole channel
    assert told.count("notifications/tools/list_changed") <= most
    assert told.count("note://static") <= most
    await disconnect(exchange)


@pytest.mark.parametrize("when", ["before the acknowledgement", "later"])
async def test_a_client_that_stops_reading_counts_as_disconnected(limits, clock, modern, when):
    """Behind the view it is the server under Django that counts."""
    limits(KEEP_ALIVE=3, SEND_TIMEOUT=3)
    exchange = listen(modern(), toolsListChanged=True)
    if when == "later":
        await acknowledged(exchange)
    exchange.stop_reading()
    await clock.advance_while(exchange.end())
    assert len(get_services().stream_limiter) == 0
    exchange.read_on()


async def test_a_stream_does_not_count_as_a_call_in_flight(limits, modern):
    limits(IN_FLIGHT=1)
    client = modern()
    one, other = listen(client, toolsListChanged=True), listen(client, toolsListChanged=True)
    for exchange in (one, other):
        await acknowledged(exchange)
    assert (await client.tool("add", {"a": 1, "b": 2})).served
    for exchange in (one, other):
        exchange.leave()
        await exchange.end()


@on_http
async def test_streams_over_the_limit_of_a_process_are_refused_at_once(limits, modern):
    limits(MAX_STREAMS=1)
    exchange = listen(modern(token="alice"), toolsListChanged=True)
    await acknowledged(exchange)
    reply = await listen(modern(token="bob"), toolsListChanged=True).reply()
    assert reply.busy(503)
    await disconnect(exchange)
    exchange = listen(modern(token="bob"), toolsListChanged=True)
    await acknowledged(exchange)
    await disconnect(exchange)


async def test_streams_per_principal_are_limited(limits, modern):
    limits(MAX_STREAMS_PER_OWNER=1)
    exchange = listen(modern(token="alice"), toolsListChanged=True)
    await acknowledged(exchange)
    assert (await listen(modern(token="alice"), toolsListChanged=True).reply()).refused(429, -32603)
    other = listen(modern(token="bob"), toolsListChanged=True)
    await acknowledged(other)
    other.leave()
    await other.end()
    await disconnect(exchange)


@on_http
async def test_a_silent_stream_is_kept_alive_with_comments(limits, clock, modern):
    limits(KEEP_ALIVE=3)
    exchange = listen(modern(), toolsListChanged=True)
    await acknowledged(exchange)
    for _ in range(3):
        await clock.advance_while(exchange.silence())
    await disconnect(exchange)


async def test_a_stream_outlasts_the_time_a_handler_may_take(limits, clock, modern):
    limits(SSE_UPGRADE_AFTER=1)
    exchange = listen(modern(), toolsListChanged=True)
    await acknowledged(exchange)
    await clock.advance(2)
    await change("list_changed", {"kind": "tools"})
    assert (await exchange.message())["method"] == "notifications/tools/list_changed"
    await disconnect(exchange)


async def test_progress_and_log_messages_are_not_for_this_stream(modern):
    client = modern()
    meta = {"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"}
    params = {"notifications": {"toolsListChanged": True}}
    exchange = client.begin("subscriptions/listen", params, meta=meta)
    await acknowledged(exchange)
    await client.tool("steps", {"count": 2}, meta=meta)
    await change("list_changed", {"kind": "tools"})
    assert (await exchange.message())["method"] == "notifications/tools/list_changed"
    await disconnect(exchange)


@contract
async def test_the_end_of_the_process_ends_a_stream_with_its_result(modern, transport):
    exchange = listen(modern(), id="last", toolsListChanged=True)
    await acknowledged(exchange)
    await change("list_changed", {"kind": "tools"})
    await exchange.message()
    await get_services().lifecycle.shutdown()
    reply = await exchange.reply()
    assert reply.message["id"] == "last"
    assert reply.result["resultType"] == "complete"
    assert reply.result["_meta"][ID] == "last"
    assert reply.result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "interaction"
    if transport.http:
        assert (await listen(modern(), toolsListChanged=True).reply()).status == 503


async def test_an_ended_stream_is_logged_on_one_line(modern, caplog):
    with caplog.at_level(logging.INFO, "mcp_django.calls"):
        exchange = listen(modern(), id=5, toolsListChanged=True)
        await acknowledged(exchange)
        assert not [record for record in caplog.records if record.name == "mcp_django.calls"]
        await disconnect(exchange)
    (record,) = [record for record in caplog.records if record.name == "mcp_django.calls"]
    assert record.mcp_method == "subscriptions/listen"
    assert record.mcp_outcome == "cancelled"
    assert record.mcp_call_id == "5"
    assert record.mcp_principal == "tests|alice|"


async def test_a_refused_stream_is_logged_on_one_line(limits, modern, caplog):
    limits(MAX_STREAMS=1)
    exchange = listen(modern(), toolsListChanged=True)
    await acknowledged(exchange)
    with caplog.at_level(logging.INFO, "mcp_django.calls"):
        await listen(modern(), toolsListChanged=True).reply()
    assert [record.mcp_outcome for record in caplog.records if record.name == "mcp_django.calls"] == ["overloaded"]
    await disconnect(exchange)


async def test_a_disconnect_while_the_stream_opens_releases_it(modern, monkeypatch):
    gate, reached = asyncio.Event(), asyncio.Event()

    async def wait(self):
        reached.set()
        await gate.wait()

    monkeypatch.setattr(Subscription, "acknowledge", wait)
    exchange = listen(modern(), toolsListChanged=True)
    await reached.wait()
    await disconnect(exchange)


async def test_a_change_before_the_acknowledgement_is_sent_after_it(modern, monkeypatch):
    settle = Subscription.acknowledge

    async def slowly(self):
        self._registry.publish("list_changed", {"kind": "tools"})
        self._registry.publish("updated", {"uri": "note://guarded"})
        self._registry.publish("updated", {"uri": "note://static"})
        await settle(self)

    monkeypatch.setattr(Subscription, "acknowledge", slowly)
    exchange = listen(modern(), toolsListChanged=True, resourceSubscriptions=["note://static", "note://guarded"])
    await acknowledged(exchange)
    assert (await exchange.message())["method"] == "notifications/tools/list_changed"
    assert (await exchange.message())["params"]["uri"] == "note://static"
    await disconnect(exchange)


async def test_a_failing_log_is_an_error_and_not_a_stream(modern, transport, monkeypatch):
    async def fails(self, deliver):
        raise RuntimeError("no database")

    monkeypatch.setattr("mcp_django.runtime.subscriptions.EventLogChangeFeed.add_listener", fails)
    reply = await listen(modern(), toolsListChanged=True).reply()
    assert reply.error["code"] == -32603
    assert "no database" not in reply.error["message"]
    assert len(get_services().stream_limiter) == (0 if transport.http else 1), "but for the channel"


@on_http
async def test_a_stream_ends_when_its_credential_is_revoked(limits, clock, modern, settings, monkeypatch):
    limits(KEEP_ALIVE=3)
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}
    known = ["alice", "bob"]
    monkeypatch.setattr("tests.interaction.verifiers.KNOWN", known)
    revoked, good = listen(modern(token="alice"), toolsListChanged=True), listen(modern(token="bob"))
    for exchange in (revoked, good):
        await acknowledged(exchange)
        await clock.advance_while(exchange.silence())
    known.remove("alice")
    assert (await clock.advance_while(revoked.reply())).result["resultType"] == "complete"
    await clock.advance_while(good.silence())
    await disconnect(good)


async def test_a_stream_ends_when_its_credential_loses_a_scope(limits, clock, modern, settings, monkeypatch):
    limits(KEEP_ALIVE=3)
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}
    less, more = (
        listen(modern(token="writer"), toolsListChanged=True),
        listen(modern(token="carol"), toolsListChanged=True),
    )
    for exchange in (less, more):
        await acknowledged(exchange)
        await clock.advance_while(exchange.silence())
    monkeypatch.setitem(SCOPES, "writer", frozenset({"notes:read"}))
    monkeypatch.setitem(SCOPES, "carol", frozenset({"notes:read", "notes:write"}))
    assert (await clock.advance_while(less.reply())).result["resultType"] == "complete"
    await clock.advance_while(more.silence())
    await disconnect(more)


async def test_a_stream_goes_on_while_credentials_cannot_be_verified(limits, clock, modern, settings, monkeypatch):
    limits(KEEP_ALIVE=3)
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}
    exchange = listen(modern(), toolsListChanged=True)
    await acknowledged(exchange)
    asked = asyncio.Event()

    class Down:
        def __contains__(self, token):
            asked.set()
            raise RuntimeError("the directory is down")

    monkeypatch.setattr("tests.interaction.verifiers.KNOWN", Down())
    await clock.advance_while(asked.wait())
    await change("list_changed", {"kind": "tools"})
    assert (await exchange.message())["method"] == "notifications/tools/list_changed"
    await disconnect(exchange)


async def test_a_stream_ends_when_its_credential_expires(limits, clock, modern, monkeypatch):
    limits(KEEP_ALIVE=3)
    exchange = listen(modern(), toolsListChanged=True)
    await acknowledged(exchange)
    monkeypatch.setattr(Subscription, "is_expired", lambda self, now: True)
    assert (await clock.advance_while(exchange.reply())).result["resultType"] == "complete"
