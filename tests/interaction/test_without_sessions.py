"""A server of the handshake era without sessions: requests are independent (basic/transports: a server
MAY assign a session id).
"""

import pytest

from mcp_django.models import Session
from tests.interaction.clients import Client
from tests.interaction.transports import on_http

MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
pytestmark = pytest.mark.revisions("2025-03-26", "2025-11-25")


@pytest.fixture
def client(transport, handshake):
    """A client that knows the server's address and its own revision, and nothing else."""

    class Unsessioned(Client):
        def headers(self, message):
            return {**super().headers(message), "mcp-protocol-version": self.revision}

    return Unsessioned(transport, handshake, server="unsessioned")


async def initialize(client):
    return await client.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client.introduction()})


async def test_initialize_agrees_on_a_revision_without_a_session(client):
    reply = await initialize(client)
    assert reply.result["protocolVersion"] == client.revision
    assert "mcp-session-id" not in reply.headers
    assert not await Session.objects.aexists()
    assert (await client.notify("notifications/initialized")).status == 202


async def test_capabilities_that_need_a_session_are_not_declared(client):
    declared = (await initialize(client)).result["capabilities"]
    assert declared == {"tools": {}}


@on_http
async def test_any_request_is_served_at_once(client):
    tools = (await client.post(MESSAGE)).result["tools"]
    assert {tool["name"] for tool in tools} == {"whose", "ask_user", "charge_per_request", "confirm"}
    assert (await client.request("ping")).result == {}


async def test_the_header_names_the_revision(client):
    reply = await client.tool("whose")
    assert reply.result["content"][0]["text"] == f'["{client.revision}",null,null]'
    assert ("structuredContent" in reply.result) is (client.revision >= "2025-06-18")


async def test_without_a_header_the_revision_is_the_default_of_the_specification(transport):
    client = Client(transport, "2025-03-26", server="unsessioned")
    reply = await client.tool("whose")
    assert reply.result["content"][0]["text"] == '["2025-03-26",null,null]'


async def test_progress_is_sent_on_the_stream_of_the_call_and_logs_are_not(client):
    reply = await client.tool("whose", meta={"progressToken": 1})
    assert len(reply.notifications("notifications/progress")) == 1
    assert reply.notifications("notifications/message") == []


async def test_a_question_without_a_session_is_an_error_with_the_reason(client):
    reply = await client.tool("ask_user")
    assert reply.result["isError"] is True
    assert "has no sessions" in reply.result["content"][0]["text"]


async def test_a_response_without_a_session_is_refused(client):
    reply = await client.post({"jsonrpc": "2.0", "id": "s1", "result": {}})
    assert reply.verdict == (400, -32600)


async def test_a_log_level_without_a_session_cannot_be_set(client):
    assert (await client.request("logging/setLevel", {"level": "error"})).error["code"] == -32601


@on_http
async def test_get_and_delete_without_sessions_are_not_allowed(client, subtests):
    for method in ["GET", "DELETE"]:
        with subtests.test(method=method):
            headers = {"content-type": None, "accept": "text/event-stream"}
            reply = await client.post(method=method, body=b"", headers=headers)
            assert reply.status == 405


async def test_an_old_session_id_is_ignored(client):
    client.session = "from-another-time"
    assert (await client.post(MESSAGE)).status == 200


async def test_batches_are_accepted_where_the_revision_has_them(client):
    reply = await client.post([MESSAGE, {**MESSAGE, "id": 2}])
    if client.revision == "2025-03-26":
        assert {message["id"] for message in reply.message} == {1, 2}
    else:
        assert reply.verdict == (400, -32600)


async def test_a_once_step_runs_once_for_each_request(client, checkpoints):
    for _ in range(2):
        await client.tool("charge_per_request", id=1)
    assert checkpoints.counts["charged"] == 2


async def test_stateless_clients_are_served(transport):
    client = Client(transport, "2026-07-28", server="unsessioned")
    assert (await client.tool("ask_user")).result["resultType"] == "input_required"
