"""`resources/subscribe` and `resources/unsubscribe` (handshake era, server/resources), and declared capabilities
in both eras.
"""

import pytest

from mcp_django.models import ResourceSubscription
from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.wiring import get_services
from tests.interaction.clients import HANDSHAKE, STATELESS, Client, together
from tests.interaction.transports import contract

NOTHING = ["note://nowhere", "note://guarded", "note://numbered/seven", "", "note://by/", "note://by/a/b"]


async def subscribe(client, uri, method="resources/subscribe"):
    return await client.request(method, {"uri": uri})


async def subscribed_to(client):
    rows = ResourceSubscription.objects.filter(session=await client.row())
    return sorted([row.uri async for row in rows])


@contract
async def test_a_session_subscribes_and_unsubscribes_with_empty_results(legacy):
    client = await legacy()
    for uri in ("note://static", "note://by/alice", "note://static"):
        assert (await subscribe(client, uri)).result == {}
    assert await subscribed_to(client) == ["note://by/alice", "note://static"]
    for uri in ("note://static", "note://static", "note://nowhere"):
        assert (await subscribe(client, uri, "resources/unsubscribe")).result == {}
    assert await subscribed_to(client) == ["note://by/alice"]


async def test_each_session_has_its_own_subscriptions(latest_legacy):
    one, other = await latest_legacy(), await latest_legacy()
    await subscribe(one, "note://static")
    await subscribe(other, "note://both")
    await subscribe(other, "note://static", "resources/unsubscribe")
    assert (await subscribed_to(one), await subscribed_to(other)) == (["note://static"], ["note://both"])


async def test_subscribing_to_a_hidden_resource_is_answered_as_to_an_unknown_one(legacy, subtests):
    for uri in NOTHING:
        with subtests.test(uri=uri):
            reply = await subscribe(await legacy(), uri)
            assert reply.error == {"code": -32002, "message": "Resource not found", "data": {"uri": uri}}


async def test_a_caller_that_may_read_a_resource_may_subscribe_to_it(latest_legacy):
    client = await latest_legacy(token="root")
    assert (await subscribe(client, "note://guarded")).result == {}


async def test_subscribing_to_an_invalid_uri_is_refused(latest_legacy, subtests):
    for method in ["resources/subscribe", "resources/unsubscribe"]:
        for params in [{}, {"uri": 1}, {"uri": None}, {"uri": "x" * 8193}]:
            with subtests.test(method=method, params=params):
                assert (await (await latest_legacy()).request(method, params)).error["code"] == -32602


async def test_subscriptions_of_a_session_are_limited_even_for_concurrent_requests(limits, latest_legacy):
    limits(SUBSCRIPTIONS=3)
    client = await latest_legacy()
    replies = await together(*(subscribe(client, f"note://numbered/{n}") for n in range(12)))
    assert len(await subscribed_to(client)) <= 3
    refused = [reply.error for reply in replies if "error" in reply.message]
    assert {error["code"] for error in refused} == {-32602}
    assert "limit of 3 subscriptions" in refused[0]["message"]


async def test_the_subscriptions_of_a_session_end_with_it(latest_legacy):
    client = await latest_legacy()
    await subscribe(client, "note://static")
    assert (await client.post(method="DELETE", body=b"")).status == 204
    assert await subscribed_to(client) == []


async def notify_updated(uri):
    await get_services().event_publisher.publish(EventDraft("changes:interaction", "updated", {"uri": uri}))


async def list_changed(kind, server="interaction"):
    await get_services().event_publisher.publish(EventDraft(f"changes:{server}", "list_changed", {"kind": kind}))


@contract
async def test_a_session_stream_has_the_updates_of_its_subscriptions(latest_legacy):
    client = await latest_legacy()
    await subscribe(client, "note://static")
    exchange = await client.listen_to_server()
    await notify_updated("note://both")
    await notify_updated("note://static")
    assert (await exchange.message())["params"] == {"uri": "note://static"}
    await subscribe(client, "note://both")
    await subscribe(client, "note://static", "resources/unsubscribe")
    await notify_updated("note://static")
    await notify_updated("note://both")
    assert (await exchange.message())["params"] == {"uri": "note://both"}
    await list_changed("tools", server="pages")
    await list_changed("tools")
    assert (await exchange.message())["method"] == "notifications/tools/list_changed"
    exchange.leave()
    await exchange.end()


async def test_updates_have_the_form_of_the_revision(legacy):
    client = await legacy()
    await subscribe(client, "note://by/alice")
    exchange = await client.listen_to_server()
    await notify_updated("note://by/alice")
    await list_changed("prompts")
    assert [(await exchange.message())["method"] for _ in range(2)] == [
        "notifications/resources/updated",
        "notifications/prompts/list_changed",
    ]
    exchange.leave()
    await exchange.end()


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_without_session_streams_subscriptions_are_not_declared(settings, transport, era):
    servers = settings.MCP["SERVERS"]
    server = {**servers["interaction"], "ENABLE_GET": False}
    settings.MCP = {**settings.MCP, "SERVERS": {**servers, "interaction": server}}
    client = await Client(transport, STATELESS if era == "stateless" else HANDSHAKE[-1]).open()
    declared = client.hello["capabilities"]
    assert ("listChanged" in declared["tools"]) is (era == "stateless")
    if era == "handshake":
        assert declared["resources"] == {}
        assert (await subscribe(client, "note://static")).refused(200, -32601)


@contract
async def test_notified_changes_are_declared(connect):
    client = await connect()
    declared = client.hello["capabilities"]
    assert declared["tools"] == {"listChanged": True}
    assert declared["prompts"] == {"listChanged": True}
    assert declared["resources"] == {"listChanged": True, "subscribe": True}


async def test_changes_of_missing_primitives_are_not_declared(either):
    declared = (await either(server="pages")).hello["capabilities"]
    assert "prompts" not in declared
    assert declared["tools"] == {"listChanged": True}


@pytest.fixture
def quiet(settings):
    """A server whose project has switched changes off."""
    off = {"tools": {"listChanged": False}, "prompts": {"listChanged": False}}
    off["resources"] = {"listChanged": False, "subscribe": False}
    servers = settings.MCP["SERVERS"]
    server = {**servers["interaction"], "CAPABILITIES": off}
    settings.MCP = {**settings.MCP, "SERVERS": {**servers, "interaction": server}}


async def test_disabled_changes_are_neither_declared_nor_served(quiet, either):
    client = await either()
    assert client.hello["capabilities"]["tools"] == {"listChanged": False}
    if client.stateless:
        reply = await client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert reply.refused(404, -32601)
    else:
        assert (await subscribe(client, "note://static")).refused(200, -32601)
