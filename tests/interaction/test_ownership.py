"""Sessions, streams, calls and states belong to a user and a program. For others they are unknown: these
get the response for an invented name. The owner is not the token: a refreshed token continues the session.
"""

import asyncio

import pytest

from mcp_django.models import ResourceSubscription
from tests.interaction.clients import STATELESS, Client, accept
from tests.interaction.transports import on_http

OWNER = "ann.app.1"
REFRESHED = "ann.app.2"
STRANGERS = ["ben.app.1", "ann.other.1"]
CALL = "tools/call"
INVENTED = "made-up-and-as-long-as-one-of-ours-is-here"


@pytest.fixture(autouse=True)
def _clients(settings):
    settings.MCP = {**settings.MCP, "AUTH": "tests.interaction.verifiers.Clients"}


@pytest.fixture
def owner(latest_legacy):
    """`await owner()`: the client whose things these are."""
    return lambda: latest_legacy(token=OWNER)


def other(client, token, session=None):
    """Another owner, with the id of the same session, or of `session`."""
    found = Client(client.transport, client.revision, token=token)
    found.session = session or client.session
    return found


def sent(client, last=None):
    """Send every kind of message with the id of a session."""
    yield client.send(client.request_message("tools/list", id=1))
    yield client.send(client.request_message(CALL, {"name": "add", "arguments": {"a": 1, "b": 2}}, id=2))
    yield client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    yield client.send({"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}})
    yield client.listen()
    yield client.listen(last)
    yield client.send(method="DELETE", body=b"", headers={"content-type": None, "accept": None})


async def answers(exchanges):
    return [(reply.status, reply.headers, reply.body) for reply in [await exchange.reply() for exchange in exchanges]]


async def start_call(client, checkpoints, tool="speak_then_wait", times=1):
    """Start a call, and read the first message of its stream."""
    exchange = client.begin(CALL, {"name": tool}, id=77, meta={"progressToken": 1})
    await exchange.message()
    await checkpoints.until("wait reached", times)
    return exchange


@on_http
async def test_the_session_of_another_owner_is_answered_as_an_unknown_one(owner, checkpoints, subtests):
    for token in STRANGERS:
        with subtests.test(token=token):
            checkpoints.reset()
            client = await owner()
            exchange = await start_call(client, checkpoints)
            stranger, sessionless = other(client, token), other(client, token, session=INVENTED)
            found = await answers(sent(stranger, exchange.last_id))
            assert found == await answers(sent(sessionless, exchange.last_id))
            assert {status for status, _, _ in found} == {404}
            assert checkpoints.counts["wait cancelled"] == 0
            checkpoints.gate("wait").set()
            assert (await exchange.reply()).served, "nothing of it has reached the session"


async def test_a_refreshed_token_goes_on_with_its_session(owner, checkpoints):
    client = await owner()
    exchange = await start_call(client, checkpoints)
    exchange.leave()
    await exchange.end()
    client.token = REFRESHED
    assert (await client.tool("remember")).result["structuredContent"] == {"result": 1}
    resumed = client.listen(exchange.last_id)
    checkpoints.gate("wait").set()
    assert (await resumed.message())["result"]["content"][0]["text"] == "waited"
    resumed.leave()
    await resumed.end()
    assert (await client.post(method="DELETE", body=b"", headers={"content-type": None, "accept": None})).status == 204
    client.token = OWNER
    assert (await client.request("ping")).status == 404


async def test_an_event_id_of_another_owner_is_unknown_in_the_session(owner, latest_legacy, checkpoints, subtests):
    for token in STRANGERS:
        with subtests.test(token=token):
            checkpoints.reset()
            client, stranger = await owner(), await latest_legacy(token=token)
            exchange = await start_call(client, checkpoints)
            own = await start_call(stranger, checkpoints, times=2)
            invented = exchange.last_id[:-1] + ("A" if exchange.last_id[-1] != "A" else "B")
            replies = await answers([stranger.listen(exchange.last_id), stranger.listen(invented)])
            assert replies[0] == replies[1]
            assert replies[0][0] == 400
            checkpoints.gate("wait").set()
            for one in (exchange, own):
                assert (await one.reply()).served


async def test_a_call_of_another_owner_is_not_cancelled(owner, latest_legacy, checkpoints, subtests):
    for token in STRANGERS:
        with subtests.test(token=token):
            checkpoints.reset()
            client, stranger = await owner(), await latest_legacy(token=token)
            exchange = await start_call(client, checkpoints)
            assert (await stranger.notify("notifications/cancelled", {"requestId": 77})).accepted
            checkpoints.gate("wait").set()
            assert (await exchange.reply()).served


async def test_a_stateless_call_is_not_cancelled_by_a_notification(modern, checkpoints, subtests):
    for token in [OWNER, *STRANGERS]:
        with subtests.test(token=token):
            checkpoints.reset()
            exchange = await start_call(modern(token=OWNER), checkpoints)
            await modern(token=token).notify("notifications/cancelled", {"requestId": 77})
            checkpoints.gate("wait").set()
            assert (await exchange.reply()).served


async def test_a_question_is_answered_by_its_owner_only(owner, latest_legacy, subtests):
    for token in STRANGERS:
        with subtests.test(token=token):
            client, stranger = await owner(), await latest_legacy(token=token)
            exchange = client.begin(CALL, {"name": "ask_name"})
            question = await exchange.message()
            await stranger.answer(question["id"], accept(value="Eve"))
            await client.answer(question["id"], accept(value="Ann"))
            assert (await exchange.reply()).result["content"][0]["text"] == "Hello Ann"


async def test_subscriptions_belong_to_their_session(owner, latest_legacy, subtests):
    for token in STRANGERS:
        with subtests.test(token=token):
            client, stranger = await owner(), await latest_legacy(token=token)
            uri = {"uri": "note://static"}
            assert (await client.request("resources/subscribe", uri)).served
            assert (await stranger.request("resources/unsubscribe", uri)).served, "as if nothing were subscribed to"
            row = await client.row()
            assert await ResourceSubscription.objects.filter(session=row.pk).acount() == 1


async def test_subscription_streams_belong_to_their_owner(modern):
    """Two clients may call their streams the same; ending one leaves the other alone."""
    wanted = {"notifications": {"toolsListChanged": True}}
    clients = [modern(token=token) for token in (OWNER, *STRANGERS)]
    streams = [client.begin("subscriptions/listen", wanted, id="s") for client in clients]
    for stream in streams:
        assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
    for client in clients[1:]:
        await client.notify("notifications/cancelled", {"requestId": "s"})
    for stream in streams[1:]:
        stream.leave()
        await stream.end()
    await asyncio.sleep(0)
    assert not streams[0].task.done()
    streams[0].leave()
    await streams[0].end()


@on_http
async def test_a_state_of_another_owner_is_answered_as_an_invented_one(modern, subtests):
    for token in STRANGERS:
        with subtests.test(token=token):
            result = (await modern(token=OWNER).tool("ask_name")).result
            state = result["requestState"]
            invented = state[:-4] + ("AAAA" if state[-4:] != "AAAA" else "BBBB")
            given = {key: accept(value="Eve") for key in result["inputRequests"]}

            given = {"name": "ask_name", "arguments": {}, "inputResponses": given}
            foreign, made_up = [
                await modern(token=token).request(CALL, {**given, "requestState": what}, id=5)
                for what in (state, invented)
            ]
            assert (foreign.status, foreign.headers, foreign.body) == (made_up.status, made_up.headers, made_up.body)
            assert foreign.refused(400, -32602)
            own = await modern(token=REFRESHED).request(CALL, {**given, "requestState": state}, id=5)
            assert own.result["content"][0]["text"] == "Hello Eve"


async def test_sessions_and_states_without_a_token_are_refused(owner, modern):
    client = await owner()
    bare = other(client, None)
    for status, headers, _ in await answers(sent(bare)):
        assert status == 401
        assert headers["www-authenticate"].startswith("Bearer")
    state = (await modern(token=OWNER).tool("ask_name")).result["requestState"]
    params = {"name": "ask_name", "arguments": {}, "requestState": state}
    assert (await Client(client.transport, STATELESS, token=None).request(CALL, params)).status == 401
