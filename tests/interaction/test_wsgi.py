"""The Django view under WSGI: JSON only, in both eras."""

import json

import pytest
from django.test import Client as DjangoClient

from tests.interaction.clients import HANDSHAKE, META, STATELESS, Client, Door, accept
from tests.interaction.messages import judge_for


@pytest.fixture
def post():
    """Post a message as a client of a revision; status, headers and message."""

    def post(message, revision, **headers):
        speaker = Client(Door(None, "/view"), revision)
        sent = {**speaker.headers(message), **{name.replace("_", "-"): value for name, value in headers.items()}}
        content_type = sent.pop("content-type")
        response = DjangoClient().post(speaker.path(), json.dumps(message), content_type=content_type, headers=sent)
        assert not response.streaming
        found = json.loads(response.content) if response.content else None
        if found is not None:
            judge_for(revision, message)(found)
        return response, found

    return post


@pytest.fixture
def call(post):
    """Call a tool as a client of the stateless era."""
    speaker = Client(Door(None, "/view"), STATELESS)

    def call(name, arguments=None, meta=None, **params):
        about = {"name": name, "arguments": arguments or {}, **params}
        return post(speaker.request_message("tools/call", about, meta=meta), STATELESS)[1]

    return call


@pytest.fixture
def session(post):
    """A session of the newest revision of the handshake era: its headers."""
    speaker = Client(Door(None, "/view"), HANDSHAKE[-1])
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": speaker.introduction()}
    response, _ = post(message, HANDSHAKE[-1])
    return {"mcp_session_id": response["mcp-session-id"]}


@pytest.mark.parametrize("name", ["add", "add_in_a_thread"])
def test_a_stateless_call_is_answered(call, name):
    assert call(name, {"a": 1, "b": 2})["result"]["structuredContent"] == {"result": 3}


def test_a_call_in_a_session_is_answered(post, session):
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    _, found = post({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}, HANDSHAKE[-1], **session)
    assert found["result"]["structuredContent"] == {"result": 3}


def test_what_a_handler_tells_is_dropped(call):
    meta = {"progressToken": 1, META + "logLevel": "debug"}
    assert call("steps", {"count": 3}, meta)["result"]["content"][0]["text"] == "done"
    assert call("chatter", {}, meta)["result"]["content"][0]["text"] == "said"


def test_questions_are_asked_in_rounds(call):
    first = call("ask_name")["result"]
    assert list(first["inputRequests"]) == ["user_name"]
    answer = {"user_name": accept(value="Al")}
    second = call("ask_name", inputResponses=answer, requestState=first["requestState"])
    assert second["result"]["content"][0]["text"] == "Hello Al"


def test_a_question_that_needs_a_stream_is_an_error_for_the_model(post, session):
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask_name", "arguments": {}}}
    _, found = post(message, HANDSHAKE[-1], **session)
    assert found["result"]["isError"] is True


def test_a_notification_is_accepted_with_an_empty_body(post, session):
    response, _ = post({"jsonrpc": "2.0", "method": "notifications/initialized"}, HANDSHAKE[-1], **session)
    assert (response.status_code, response.content) == (202, b"")


def test_errors_have_their_statuses(post):
    response, found = post(Client(Door(None, ""), STATELESS).request_message("ping"), STATELESS)
    assert (response.status_code, found["error"]["code"]) == (404, -32601)


def test_white_space_around_headers_does_not_count(post):
    message = Client(Door(None, ""), STATELESS).request_message("tools/list")
    assert post(message, STATELESS, mcp_method="  tools/list  ")[0].status_code == 200
