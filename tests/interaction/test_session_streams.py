"""The stream of a session: permission to open it, its notifications and its end (basic/transports, listening for
messages from the server).
"""

import asyncio
import itertools

import pytest

from mcp_django import wiring
from mcp_django.models import Session, StreamEvent
from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.transports.http.handler import get_http_endpoint
from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.transports import on_http
from tests.interaction.verifiers import SCOPES
from tests.support.waiting import eventually

pytestmark = pytest.mark.revisions(HANDSHAKE[0], HANDSHAKE[-1])

POLLING = HANDSHAKE[-1]
numbers = itertools.count(1)


async def send_log(client, data):
    """Send a log message to a session, as any part of the project would."""
    row = await Session.objects.aget(key_hash=Session.hash(client.session))
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": data}}
    await wiring.get_services().event_publisher.publish(EventDraft(f"session:{row.pk}", "message", message))


def data(message):
    return message["params"]["data"]


async def open_stream(client, last=None, **how):
    """A stream that is open."""
    exchange = client.listen(last, **how)
    status, headers = await exchange.started()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    return exchange


async def until_it_ends(exchange):
    while await exchange.frame() is not None:
        pass
    await exchange.end()


async def leave(exchange):
    exchange.leave()
    await exchange.end()


async def delete(client):
    return await client.post(method="DELETE", body=b"", headers={"content-type": None, "accept": None})


@on_http
async def test_a_session_stream_has_the_notifications_of_its_session(legacy):
    client = await legacy()
    exchange = await open_stream(client)
    for number in (1, 2):
        await send_log(client, number)
    assert [data(await exchange.message()) for _ in range(2)] == [1, 2]
    await leave(exchange)


async def test_a_session_stream_has_no_notifications_of_another_session(latest_legacy):
    client, other = await latest_legacy(), await latest_legacy()
    exchange = await open_stream(client)
    await send_log(other, "for the other")
    await send_log(client, "for this one")
    assert data(await exchange.message()) == "for this one"
    await leave(exchange)


@on_http
async def test_a_resumed_session_stream_sends_missed_events_once_and_in_order(legacy):
    client = await legacy()
    exchange = await open_stream(client)
    await send_log(client, 1)
    assert data(await exchange.message()) == 1
    await leave(exchange)
    for number in (2, 3):
        await send_log(client, number)
    again = await open_stream(client, exchange.last_id)
    await send_log(client, 4)
    assert [data(await again.message()) for _ in range(3)] == [2, 3, 4]
    await leave(again)


async def test_a_new_session_stream_sends_no_past_events(latest_legacy):
    client = await latest_legacy()
    await send_log(client, "before")
    exchange = await open_stream(client)
    await send_log(client, "after")
    assert data(await exchange.message()) == "after"
    await leave(exchange)


async def test_a_new_session_stream_replaces_the_old_one(legacy):
    client = await legacy()
    first = await open_stream(client)
    await send_log(client, 1)
    second = await open_stream(client)
    await send_log(client, 2)
    assert data(await first.message()) == 1
    await until_it_ends(first)
    assert data(await second.message()) == 2
    await leave(second)


@pytest.mark.revisions(*HANDSHAKE)
async def test_a_session_stream_opens_with_an_id_where_clients_can_read_it(legacy, handshake):
    client = await legacy()
    exchange = await open_stream(client)
    await send_log(client, 1)
    first = await exchange.frame()
    assert first.id
    assert (first.data == b"") is (handshake == POLLING)
    await leave(exchange)


@on_http
async def test_comments_keep_a_silent_session_stream_and_its_session_alive(limits, clock, legacy):
    limits(KEEP_ALIVE=3)
    client = await legacy()
    exchange = await open_stream(client)
    sessions = get_http_endpoint("interaction")._server.ports.sessions
    touched = asyncio.Event()
    sessions.touch = lambda session: touched.set()
    await clock.advance_while(touched.wait())
    await clock.advance_while(exchange.silence())
    await leave(exchange)


@pytest.fixture
def watchful(limits, settings):
    """Credentials are verified at every look."""
    limits(KEEP_ALIVE=3)
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}


@pytest.mark.usefixtures("watchful")
async def test_a_revoked_credential_ends_its_session_stream(clock, latest_legacy, monkeypatch):
    known = ["alice", "bob"]
    monkeypatch.setattr("tests.interaction.verifiers.KNOWN", known)
    exchange, other = await open_stream(await latest_legacy()), await open_stream(await latest_legacy(token="bob"))
    await clock.advance_while(exchange.silence())
    known.remove("alice")
    await clock.advance_while(until_it_ends(exchange))
    await clock.advance_while(other.silence())
    await leave(other)


@pytest.mark.usefixtures("watchful")
async def test_a_credential_that_lost_a_scope_ends_its_session_stream(clock, latest_legacy, monkeypatch):
    exchange = await open_stream(await latest_legacy(token="writer"))
    await clock.advance_while(exchange.silence())
    monkeypatch.setitem(SCOPES, "writer", frozenset({"notes:read"}))
    await clock.advance_while(until_it_ends(exchange))


async def test_the_event_id_advances_with_events_of_other_sessions(limits, clock, latest_legacy):
    limits(KEEP_ALIVE=3)
    client, other = await latest_legacy(), await latest_legacy()
    exchange = await open_stream(client)
    first = await exchange.frame()
    await send_log(other, "not for this one")
    frame = await clock.advance_while(exchange.frame())
    while frame.data is None:
        frame = await clock.advance_while(exchange.frame())
    assert (frame.data, frame.id != first.id) == (b"", True)
    await leave(exchange)


async def test_resuming_after_events_deleted_from_the_log_is_refused(latest_legacy, subtests):
    for kept in [0, 1]:
        with subtests.test(kept=kept):
            client = await latest_legacy()
            exchange = await open_stream(client)
            await send_log(client, 1)
            await exchange.message()
            await leave(exchange)
            await send_log(client, 2)
            await send_log(client, 3)
            await wiring.get_services().executor.run(_forget_the_oldest_but, kept)
            reply = await client.listen(exchange.last_id).reply()
            assert (reply.status, b"have expired" in reply.body) == (400, True)


def _forget_the_oldest_but(kept):
    keep = list(StreamEvent.objects.order_by("-seq").values_list("seq", flat=True)[:kept])
    StreamEvent.objects.exclude(seq__in=keep).delete()


@on_http
async def test_the_end_of_the_session_ends_its_stream(legacy):
    client = await legacy()
    exchange = await open_stream(client)
    assert (await delete(client)).status == 204
    await until_it_ends(exchange)
    assert (await client.listen().reply()).status == 404


async def test_an_end_in_the_admin_ends_its_stream(latest_legacy):
    client = await latest_legacy()
    exchange = await open_stream(client)
    row = Session.objects.filter(key_hash=Session.hash(client.session))
    await wiring.get_services().executor.run(row.end, "admin")
    await until_it_ends(exchange)


async def test_a_stream_without_the_right_accept_is_not_acceptable(legacy):
    client = await legacy()
    reply = await client.listen(headers={"accept": "application/json"}).reply()
    assert reply.status == 406
    await leave(await open_stream(client, headers={"accept": "*/*"}))


async def test_a_stream_without_a_session_is_a_bad_request(transport, handshake):
    assert (await Client(transport, handshake).listen().reply()).status == 400


async def test_a_stream_in_an_unknown_session_is_not_found(transport, handshake):
    client = Client(transport, handshake)
    client.session = "no-such-session"
    assert (await client.listen().reply()).status == 404


async def test_a_stream_in_the_session_of_another_owner_is_not_found(legacy):
    client = await legacy(token="alice")
    client.token = "bob"
    assert (await client.listen().reply()).status == 404


async def test_the_stateless_era_has_no_session_stream(transport):
    client = Client(transport, STATELESS)
    reply = await client.listen(headers={"mcp-protocol-version": STATELESS}).reply()
    assert reply.status == 405


async def test_a_server_of_the_stateless_era_names_the_allowed_methods(transport):
    reply = await Client(transport, HANDSHAKE[-1], server="modern").listen().reply()
    assert (reply.status, reply.headers["allow"]) == (405, "POST, OPTIONS")


async def test_an_unknown_version_is_a_bad_request(latest_legacy):
    client = await latest_legacy()
    assert (await client.listen(headers={"mcp-protocol-version": "1999-01-01"}).reply()).status == 400


@on_http
async def test_head_opens_no_session_stream(latest_legacy):
    client = await latest_legacy()
    exchange = await open_stream(client)
    reply = await client.post(method="HEAD", body=b"", headers={"content-type": None, "accept": "text/event-stream"})
    assert (reply.status, reply.body) == (405, b"")
    assert "GET" in reply.headers["allow"]
    await send_log(client, "still here")
    assert data(await exchange.message()) == "still here"
    await leave(exchange)


@on_http
async def test_get_and_delete_can_be_switched_off(settings, transport):
    servers = {**settings.MCP["SERVERS"], "legacy": {"ENABLE_GET": False, "ALLOW_DELETE": False}}
    settings.MCP = {**settings.MCP, "SERVERS": servers}
    client = await Client(transport, HANDSHAKE[-1], server="legacy").open()
    for reply in (await client.listen().reply(), await delete(client)):
        assert (reply.status, reply.headers["allow"]) == (405, "POST, OPTIONS")


async def test_more_streams_than_allowed_are_refused_at_once(limits, latest_legacy):
    limits(MAX_STREAMS=1)
    client, other = await latest_legacy(), await latest_legacy()
    exchange = await open_stream(client)
    reply = await other.listen().reply()
    assert reply.status == 503
    assert float(reply.headers["retry-after"]) > 0
    await leave(exchange)
    await leave(await open_stream(other))


async def test_a_stream_asks_proxies_not_to_buffer_or_keep_it(latest_legacy):
    client = await latest_legacy()
    exchange = client.listen()
    _, headers = await exchange.started()
    assert headers["x-accel-buffering"] == "no"
    assert "no-cache" in headers["cache-control"]
    assert "content-length" not in headers
    await leave(exchange)


@on_http
async def test_a_disconnect_releases_the_session_stream(legacy):
    client = await legacy()
    exchange = await open_stream(client)
    listens, streams, feed = (
        wiring.get_services().stream_limiter,
        wiring.get_services().process.call_streams.get_loop_streams(),
        wiring.get_services().event_publisher.get_follower(),
    )
    row = await Session.objects.aget(key_hash=Session.hash(client.session))
    changes = "changes:interaction"
    assert (len(listens), streams.has_session(row.pk), changes in feed._topics) == (1, True, True)
    await leave(exchange)
    await eventually(lambda: not len(listens))
    assert (streams.has_session(row.pk), changes in feed._topics) == (False, False)


async def test_a_malformed_event_id_is_a_bad_request(latest_legacy, subtests):
    for last in ["s.1.x", "s.99999999999999999999.AAAAAAAAAAAAAAAA", "..", "é", "x" * 5000]:
        with subtests.test(last=last):
            client = await latest_legacy()
            assert (await client.listen(last).reply()).status == 400
