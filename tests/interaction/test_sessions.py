"""Sessions of the handshake era: statuses, owners, ends (basic/transports)."""

import logging
from unittest.mock import AsyncMock, Mock

import pytest
from django.db import IntegrityError, InterfaceError, InternalError, OperationalError, ProgrammingError

from mcp_django.models import Session as SessionRow
from mcp_django.wiring import get_server
from tests.interaction.clients import HANDSHAKE, Client
from tests.interaction.transports import on_http

pytestmark = pytest.mark.revisions(HANDSHAKE[0], HANDSHAKE[-1])

INITIALIZED = "notifications/initialized"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    },
}
MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


async def delete(client, **headers):
    return await client.post(method="DELETE", body=b"", headers={"content-type": None, "accept": None, **headers})


async def test_a_request_without_a_session_is_a_bad_request(transport, handshake):
    assert (await Client(transport, handshake).post(MESSAGE)).status == 400


@on_http
async def test_a_request_in_an_unknown_session_is_not_found(transport, handshake):
    client = Client(transport, handshake)
    client.session = "no-such-session"
    assert (await client.post(MESSAGE)).status == 404


async def test_a_malformed_session_id_is_answered(transport, subtests):
    for name in ["x" * 5000, "%00", "é", "a b", ""]:
        with subtests.test(name=name):
            client = Client(transport, "2025-11-25")
            client.session = name
            assert (await client.post(MESSAGE)).status in (400, 404)


@on_http
async def test_delete_ends_a_session(legacy):
    client = await legacy()
    assert 200 <= (await delete(client)).status < 300
    assert (await client.post(MESSAGE)).status == 404


async def test_an_ended_session_cannot_be_used_again(legacy):
    client = await legacy()
    await delete(client)
    assert (await delete(client)).status == 404
    assert (await client.notify("notifications/initialized")).status == 404
    assert (await client.post({"jsonrpc": "2.0", "id": "s1", "result": {}})).status == 404


@on_http
async def test_an_unavailable_database_is_not_a_missing_session(latest_legacy, monkeypatch, caplog):
    client = await latest_legacy()

    async def fail(*args):
        raise OperationalError("connection refused by db.internal")

    sessions = get_server("interaction").ports.sessions
    monkeypatch.setattr(sessions, "peek", lambda *args: None)
    monkeypatch.setattr(sessions, "load", fail)
    for reply in (await client.post(MESSAGE), await delete(client)):
        assert (reply.status, "retry-after" in reply.headers) == (503, True)
        assert b"db.internal" not in reply.body
    assert "db.internal" in caplog.text
    monkeypatch.undo()
    assert (await client.post(MESSAGE)).status == 200


class DriverError(Exception):
    """An exception of PostgreSQL's driver."""

    def __init__(self, sqlstate):
        super().__init__("secret words of the database")
        self.sqlstate = sqlstate


DATABASE_FAILURES = [
    (OperationalError("database or disk is full"), "Database unavailable"),
    (OperationalError("attempt to write a readonly database"), "Database unavailable"),
    (InterfaceError("connection already closed"), "Database unavailable"),
    (InternalError("cannot execute INSERT", DriverError("25006")), "Database unavailable"),
    (OperationalError("no such table: mcp_django_session"), "run 'manage.py migrate'"),
    (ProgrammingError("relation does not exist", DriverError("42P01")), "run 'manage.py migrate'"),
]


async def test_a_session_that_the_database_cannot_store_is_an_overload(transport, monkeypatch, caplog, subtests):
    for error, logged in DATABASE_FAILURES:
        with subtests.test(error=error):
            error.__cause__ = error.args[1] if len(error.args) > 1 else None
            monkeypatch.setattr(SessionRow.objects.__class__, "admit", Mock(side_effect=error))
            caplog.clear()
            reply = await Client(transport, "2025-11-25").post(INITIALIZE)
            assert (reply.status, int(reply.headers["retry-after"]) >= 1) == (503, True)
            assert ("migrate" in reply.body.decode()) is ("migrate" in logged)
            assert "secret" not in reply.body.decode()
            (record,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
            assert logged in record.getMessage()
            assert "Reference" not in record.getMessage()
    monkeypatch.undo()
    assert (await Client(transport, "2025-11-25").post(INITIALIZE)).status == 200


async def test_a_bug_in_the_storage_of_sessions_is_no_overload(transport, monkeypatch, caplog):
    monkeypatch.setattr(SessionRow.objects.__class__, "admit", Mock(side_effect=IntegrityError("secret")))
    reply = await Client(transport, "2025-11-25").post(INITIALIZE)
    assert (reply.status, "Internal error (reference" in reply.body.decode()) == (200, True)


@on_http
async def test_a_notification_that_the_database_cannot_store_is_refused_and_may_be_repeated(
    transport, monkeypatch, caplog
):
    client = Client(transport, "2025-11-25")
    client.session = (await client.post(INITIALIZE)).headers["mcp-session-id"]
    sessions, initialized = get_server("interaction").ports.sessions, {"jsonrpc": "2.0", "method": INITIALIZED}
    save = AsyncMock(side_effect=OperationalError("database or disk is full"))
    monkeypatch.setattr(sessions, "save", save)
    assert (await client.post(initialized)).status == 503
    assert "Database unavailable" in caplog.text
    monkeypatch.undo()
    assert (await client.post(initialized)).status == 202
    assert (await SessionRow.objects.aget(key_hash=SessionRow.hash(client.session))).initialized


async def test_delete_without_a_session_is_a_bad_request(transport, handshake):
    assert (await delete(Client(transport, handshake))).status == 400


async def test_delete_of_an_unknown_session_is_not_found(transport):
    client = Client(transport, "2025-11-25")
    client.session = "no-such-session"
    assert (await delete(client)).status == 404


async def test_a_session_of_another_owner_is_not_found(legacy):
    client = await legacy(token="alice")
    client.token = "bob"
    assert (await client.post(MESSAGE)).status == 404
    assert (await delete(client)).status == 404
    client.token = "alice"
    assert (await client.post(MESSAGE)).status == 200


async def test_a_session_of_another_server_is_not_found(legacy):
    client = await legacy()
    client.server = "pages"
    assert (await client.post(MESSAGE)).status == 404


@on_http
async def test_ending_a_session_cancels_its_calls(latest_legacy, checkpoints):
    client = await latest_legacy()
    waiting = client.begin("tools/call", {"name": "wait"})
    await checkpoints.until("wait reached")
    await delete(client)
    await checkpoints.until("wait cancelled")
    await waiting.reply()


@on_http
async def test_get_is_a_stream_or_not_allowed(legacy):
    client = await legacy()
    exchange = client.send(method="GET", body=b"", headers={"content-type": None, "accept": "text/event-stream"})
    status, headers = await exchange.started()
    assert status == 405 or headers["content-type"].startswith("text/event-stream")
    exchange.leave()
    await exchange.end()


async def test_an_unexpected_response_is_accepted_and_dropped(legacy):
    client = await legacy()
    reply = await client.post({"jsonrpc": "2.0", "id": "made-up", "result": {}})
    assert (reply.status, reply.body) == (202, b"")
    assert (await client.request("ping")).status == 200


async def test_a_notification_is_accepted_with_an_empty_body(legacy, subtests):
    for method in ["notifications/cancelled", "notifications/roots/list_changed", "notifications/made_up"]:
        with subtests.test(method=method):
            reply = await (await legacy()).notify(method, {})
            assert (reply.status, reply.body) == (202, b"")


async def test_a_notification_without_a_session_is_refused(transport, handshake):
    reply = await Client(transport, handshake).notify("notifications/initialized")
    assert reply.status == 400


async def test_sessions_per_owner_are_limited_and_an_idle_one_is_evicted(limits, latest_legacy):
    limits(SESSIONS_PER_OWNER=2)
    first, second = await latest_legacy(), await latest_legacy()
    third = await latest_legacy()
    statuses = [(await client.post(MESSAGE)).status for client in (first, second, third)]
    assert statuses == [404, 200, 200]


async def test_sessions_of_one_owner_do_not_evict_those_of_another(limits, latest_legacy):
    limits(SESSIONS_PER_OWNER=1)
    alice, bob = await latest_legacy(token="alice"), await latest_legacy(token="bob")
    assert [(await client.post(MESSAGE)).status for client in (alice, bob)] == [200, 200]


async def test_above_the_cap_of_all_sessions_the_handshake_is_refused(limits, latest_legacy, transport):
    limits(SESSIONS=2)
    await latest_legacy(token="alice")
    await latest_legacy(token="bob")
    client = Client(transport, "2025-11-25", token="carol")
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client.introduction()}
    reply = await client.post(message)
    assert reply.status in (429, 503)
    assert float(reply.headers["retry-after"]) > 0


async def test_a_session_is_known_to_every_process(legacy, handshake, restart):
    client = await legacy()
    restart()
    reply = await client.post(MESSAGE)
    assert reply.status == 200
    assert ("title" in next(t for t in reply.result["tools"] if t["name"] == "rich")) is (handshake >= "2025-06-18")


async def test_the_log_level_of_a_session_is_known_to_every_process(latest_legacy, restart):
    client = await latest_legacy()
    await client.request("logging/setLevel", {"level": "error"})
    restart()
    heard = (await client.tool("chatter")).notifications("notifications/message")
    assert [params["level"] for params in heard] == ["error"]


async def test_an_end_is_known_to_every_process(latest_legacy, restart):
    client = await latest_legacy()
    await delete(client)
    restart()
    assert (await client.post(MESSAGE)).status == 404


async def test_a_session_with_an_open_stream_is_not_idle(latest_legacy, transport):
    client = await latest_legacy()
    known = next(one.session for one in get_server("interaction").ports.sessions._entries.values())
    exchange = client.send(method="GET", body=b"", headers={"content-type": None, "accept": "text/event-stream"})
    assert (await exchange.started())[0] == 200
    assert (known.open_streams, known.is_busy) == (1, True)
    await delete(client)
    while await exchange.frame() is not None:
        pass
    await exchange.end()
    assert known.open_streams == 0
