"""The Django view under WSGI: complete responses only, in both eras."""

import contextlib
import json

import pytest
from asgiref.sync import async_to_sync
from django.core.asgi import get_asgi_application
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import Client as DjangoClient
from django.utils import translation

from mcp_django.models import EndReason, Session
from mcp_django.signals import call_finished, call_started
from tests.interaction.clients import HANDSHAKE, META, REVISIONS, STATELESS, Client, accept
from tests.interaction.messages import message_check
from tests.interaction.transports import Transport
from tests.support.sse_decoder import Decoder

HEADERS = {"authorization": "Bearer alice", "host": "127.0.0.1:8000"}


@pytest.fixture
def post():
    """Post a message as a client of a revision; status, headers and message."""

    def post(message, revision, path=None, **headers):
        speaker = Client(Transport(None, "/view"), revision)
        sent = {**speaker.headers(message), **{name.replace("_", "-"): value for name, value in headers.items()}}
        content_type = sent.pop("content-type")
        response = DjangoClient().post(
            path or speaker.path(), json.dumps(message), content_type=content_type, headers=sent
        )
        for signal in (request_started, request_finished):
            # Django's test client connects it again, to close the test's connection at the next request.
            signal.disconnect(close_old_connections)
        assert not response.streaming
        found = json.loads(response.content) if response.get("content-type") == "application/json" else None
        if found is not None:
            message_check(revision, message)(found)
        return response, found

    return post


@pytest.fixture
def call(post):
    """Call a tool as a client of the stateless era."""
    speaker = Client(Transport(None, "/view"), STATELESS)

    def call(name, arguments=None, meta=None, **params):
        about = {"name": name, "arguments": arguments or {}, **params}
        return post(speaker.request_message("tools/call", about, meta=meta), STATELESS)[1]

    return call


@pytest.fixture
def session(post):
    """A session of the newest revision of the handshake era: its headers."""
    speaker = Client(Transport(None, "/view"), HANDSHAKE[-1])
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": speaker.introduction()}
    response, _ = post(message, HANDSHAKE[-1])
    return {"mcp_session_id": response["mcp-session-id"]}


def test_a_stateless_call_is_answered(call, subtests):
    for name in ["add", "add_in_a_thread"]:
        with subtests.test(name=name):
            assert call(name, {"a": 1, "b": 2})["result"]["structuredContent"] == {"result": 3}


def test_a_call_in_a_session_is_answered(post, session):
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    _, found = post({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}, HANDSHAKE[-1], **session)
    assert found["result"]["structuredContent"] == {"result": 3}


def test_a_client_that_accepts_only_streams_gets_one_event(post, session):
    message = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "steps", "arguments": {"count": 3}},
    }
    response, _ = post(message, HANDSHAKE[-1], accept="text/event-stream", **session)
    (found,) = Decoder().feed(response.content)
    assert response["content-type"] == "text/event-stream"
    assert json.loads(found.data)["result"]["content"][0]["text"] == "done"


def test_notifications_of_a_handler_are_dropped(call):
    meta = {"progressToken": 1, META + "logLevel": "debug"}
    assert call("steps", {"count": 3}, meta)["result"]["content"][0]["text"] == "done"
    assert call("chatter", {}, meta)["result"]["content"][0]["text"] == "said"


def test_questions_are_sent_in_rounds(call):
    first = call("ask_name")["result"]
    assert list(first["inputRequests"]) == ["user_name"]
    answer = {"user_name": accept(value="Al")}
    second = call("ask_name", inputResponses=answer, requestState=first["requestState"])
    assert second["result"]["content"][0]["text"] == "Hello Al"


def test_a_question_that_needs_a_stream_is_an_error_with_the_reason(post, session):
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask_name", "arguments": {}}}
    _, found = post(message, HANDSHAKE[-1], **session)
    assert found["result"]["isError"] is True
    assert "under WSGI" in found["result"]["content"][0]["text"]


NOTIFYING = {"experimental": {"x": {}}, "tools": {"listChanged": True}, "resources": {"subscribe": True}}


def test_capabilities_that_need_a_stream_are_not_declared(post, settings, subtests):
    for revision in REVISIONS:
        with subtests.test(revision=revision):
            servers = settings.MCP["SERVERS"]
            server = {**servers["interaction"], "CAPABILITIES": NOTIFYING}
            settings.MCP = {**settings.MCP, "SERVERS": {**servers, "interaction": server}}
            speaker = Client(Transport(None, "/view"), revision)
            opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": speaker.introduction()}
            _, found = post(speaker.request_message("server/discover") if speaker.stateless else opening, revision)
            capabilities = found["result"]["capabilities"]
            assert "logging" not in capabilities
            assert (capabilities["tools"], capabilities["resources"]) == ({}, {})
            assert "x" in capabilities["experimental"]


async def test_capabilities_without_a_stream_are_declared(settings, either):
    servers = settings.MCP["SERVERS"]
    server = {**servers["interaction"], "CAPABILITIES": NOTIFYING}
    settings.MCP = {**settings.MCP, "SERVERS": {**servers, "interaction": server}}
    capabilities = (await either()).hello["capabilities"]
    assert "logging" in capabilities
    assert capabilities["tools"] == {"listChanged": True}
    assert capabilities["resources"] == {"listChanged": True, "subscribe": True}


def test_a_session_cannot_subscribe(post, session, subtests):
    for method in ["resources/subscribe", "resources/unsubscribe"]:
        with subtests.test(method=method):
            message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": {"uri": "note://static"}}
            assert post(message, HANDSHAKE[-1], **session)[1]["error"]["code"] == -32601


def test_subscriptions_listen_is_not_served(post):
    speaker = Client(Transport(None, "/view"), STATELESS)
    message = speaker.request_message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    response, found = post(message, STATELESS)
    assert (response.status_code, found["error"]["code"]) == (404, -32601)


def test_a_log_level_cannot_be_set(post, session):
    message = {"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": "debug"}}
    assert post(message, HANDSHAKE[-1], **session)[1]["error"]["code"] == -32601


def test_a_session_has_no_stream_to_get(subtests):
    for method in ["get", "head", "put"]:
        with subtests.test(method=method):
            response = getattr(DjangoClient(), method)("/view/mcp/interaction", headers=HEADERS)
            assert (response.status_code, response.content, response["allow"]) == (405, b"", "POST, DELETE, OPTIONS")


def test_delete_ends_a_session_under_wsgi(post, session):
    headers = {**HEADERS, "mcp-session-id": session["mcp_session_id"]}
    assert DjangoClient().delete("/view/mcp/interaction", headers=headers).status_code == 204
    assert Session.objects.get(terminated_at__isnull=False).end_reason == EndReason.CLIENT
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert post(message, HANDSHAKE[-1], **session)[0].status_code == 404


def test_lists_are_the_same_as_under_asgi_in_either_order(settings, post, subtests):
    for method in ["tools/list", "resources/list", "prompts/list"]:
        with subtests.test(method=method):
            for first in ("wsgi", "asgi"):
                settings.MCP = {**settings.MCP}
                client = Client(Transport(get_asgi_application, "/view"), STATELESS)
                message = client.request_message(method, id=1)
                asked = {
                    "wsgi": lambda message=message: post(message, STATELESS)[0].content,
                    "asgi": lambda message=message, client=client: async_to_sync(client.post)(message).body,
                }
                answers = {name: asked[name]() for name in sorted(asked, reverse=first == "wsgi")}
                assert answers["wsgi"] == answers["asgi"]


def test_declared_capabilities_do_not_depend_on_earlier_clients(post):
    message = Client(Transport(None, "/view"), STATELESS).request_message("server/discover", id=1)
    for _ in range(2):
        assert "logging" not in post(message, STATELESS)[1]["result"]["capabilities"]
        client = Client(Transport(get_asgi_application, "/view"), STATELESS)
        assert "logging" in async_to_sync(client.post)(message).result["capabilities"]


@pytest.mark.parametrize("name", ["around", "around_a_thread"])
def test_the_language_of_a_call_does_not_leak_into_the_next(settings, post, name):
    settings.MIDDLEWARE, settings.LANGUAGE_CODE = ["django.middleware.locale.LocaleMiddleware"], "en"
    speaker = Client(Transport(None, "/view"), STATELESS)
    for language, monday in (("de", "Montag"), ("fr", "lundi"), ("en", "Monday")):
        for tool in (name, "meddle_in_a_thread", name):
            message = speaker.request_message("tools/call", {"name": tool, "arguments": {}})
            _, found = post(message, STATELESS, path="/view/mcp/places", accept_language=language)
            expected = "lundi" if tool.startswith("meddle") else monday
            assert found["result"]["structuredContent"]["monday"] == expected
    assert translation.get_language() == "en"  # LocaleMiddleware's, in this thread


@pytest.mark.parametrize("middleware", ["sync_actor", "async_actor"])
def test_context_variables_of_middleware_reach_handlers(settings, post, middleware, subtests):
    settings.MIDDLEWARE = [f"tests.interaction.actors.{middleware}"]
    client = Client(Transport(None, "/view"), STATELESS, server="places")
    for name in ("actors", "actors_in_a_thread"):
        with subtests.test(name=name):
            message = client.request_message("tools/call", {"name": name, "arguments": {}})
            for headers, actor in (({"x_actor": "ann"}, "ann"), ({}, "anonymous")):
                _, found = post(message, STATELESS, client.path(), **headers)
                assert found["result"]["structuredContent"]["result"] == [actor, actor]


def test_the_django_request_has_path_user_and_headers(post):
    speaker = Client(Transport(None, "/view"), STATELESS)
    message = speaker.request_message("tools/call", {"name": "request", "arguments": {}})
    _, found = post(message, STATELESS, path="/view/mcp/places")
    seen = found["result"]["structuredContent"]
    assert (seen["user"], seen["auser"], seen["path"]) == ("alice", "alice", "/view/mcp/places")
    assert seen["name"] == "mcp_django:places"
    assert json.loads(seen["body"]) == json.loads(seen["read"]) == message


LIFESPANS = []


@contextlib.asynccontextmanager
async def lifespan(server):
    """Notes when it is entered and left."""
    LIFESPANS.append("in")
    try:
        yield
    finally:
        LIFESPANS.append("out")


def test_a_lifespan_lasts_for_one_request(settings, call):
    server = {**settings.MCP["SERVERS"]["interaction"], "LIFESPAN": f"{__name__}.lifespan"}
    settings.MCP = {**settings.MCP, "SERVERS": {**settings.MCP["SERVERS"], "interaction": server}}
    LIFESPANS.clear()
    for _ in range(2):
        call("add", {"a": 1, "b": 2})
    assert LIFESPANS == ["in", "out"] * 2


def test_a_notification_is_accepted_with_an_empty_body(post, session):
    response, _ = post({"jsonrpc": "2.0", "method": "notifications/initialized"}, HANDSHAKE[-1], **session)
    assert (response.status_code, response.content) == (202, b"")


def test_errors_have_their_statuses(post):
    response, found = post(Client(Transport(None, ""), STATELESS).request_message("ping"), STATELESS)
    assert (response.status_code, found["error"]["code"]) == (404, -32601)


def test_white_space_around_headers_does_not_count(post):
    message = Client(Transport(None, ""), STATELESS).request_message("tools/list")
    assert post(message, STATELESS, mcp_method="  tools/list  ")[0].status_code == 200


def test_signals_are_sent_under_wsgi(call, subtests):
    told = []

    def started(call, **kwargs):
        told.append("started")

    async def finished(call, outcome, **kwargs):
        told.append(outcome)

    call_started.connect(started)
    call_finished.connect(finished)
    try:
        for name in ["add", "add_in_a_thread", "buggy"]:
            with subtests.test(name=name):
                told.clear()
                call(name, {} if name == "buggy" else {"a": 1, "b": 2})
                assert told == ["started", "bug" if name == "buggy" else "ok"]
    finally:
        call_started.disconnect(started)
        call_finished.disconnect(finished)
