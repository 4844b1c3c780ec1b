"""SIGTERM: what is not waited for. New calls are refused, what takes too long is told, nothing else holds up the end.

Each test has servers of its own, since it ends them.
"""

import signal

import pytest

from tests.servers.client import HANDSHAKE, STATELESS, Answer, Client
from tests.servers.ending import (
    GRACE,
    MOUNTED,
    SECONDS,
    VIEW_ONLY,
    assert_lifespan_was_left_after_the_calls,
    begin,
    health,
    reading,
    site,
)
from tests.servers.harness import DOORS, Server, serve, until

SHORT = 1.0
"""A grace that nobody can finish in."""
CLOSING = {"code": -32603, "message": "The server is shutting down"}


def new_call(server: Server, path: str) -> Answer:
    return Client(server.port, path, STATELESS).call("fast").answer()


@pytest.mark.parametrize(("kind", "view_only"), [*(how for how in MOUNTED if "hypercorn" not in how), *VIEW_ONLY])
def test_what_outlasts_the_grace_is_told_so(kind: str, view_only: bool) -> None:
    with site(kind, grace=SHORT, view_only=view_only) as server, reading() as answers:
        for path in (DOORS["view"],) if view_only else DOORS.values():
            begin(server, answers, path, 60)
        with Client(server.port, DOORS["view"], HANDSHAKE) as client:
            asking = client.call("ask", {"tag": "ask"})
            said = asking.events()
            assert next(said)["method"] == "elicitation/create"
            ended = server.terminate()
            client.session = None  # there is nobody to end it with
            assert [message["error"] for message in said] == [CLOSING]
        for tag in answers.tags():
            answer = answers.answer(tag)
            assert answer.message["error"] == CLOSING, tag
            assert answer.status == (503 if tag.startswith("wait") else 200)
            assert server.events(tag, "cancelled"), tag
        assert ended.seconds < GRACE
        if kind != "granian" or not view_only:  # which waits for nothing but its connections
            assert_lifespan_was_left_after_the_calls(server)


@pytest.mark.parametrize(
    ("kind", "view_only"), [("daphne", False), ("daphne", True), ("uvicorn", True), ("gunicorn", True)]
)
def test_a_new_call_is_refused_and_health_tells_while_calls_finish(kind: str, view_only: bool) -> None:
    """Where the server is told last; the others close their sockets at once."""
    path = DOORS["view"] if view_only else DOORS["asgi"]
    with site(kind, view_only=view_only) as server, reading() as answers:
        assert health(server, path) == (200, {"status": "ok"})
        begin(server, answers, path, SECONDS)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: health(server, path) == (503, {"status": "draining"}))
        refused = new_call(server, path)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.message["error"]["message"] == "The server is shutting down; try again later"
        server.process.wait(30)
        for tag in answers.tags():
            assert answers.answer(tag).value == tag


def test_a_second_signal_is_not_waited_for() -> None:
    with site("daphne", grace=60) as server:
        call = Client(server.port, "/mcp", STATELESS).call("wait", {"tag": "wait"})
        server.event("wait", "started")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: health(server, "/mcp")[0] == 503)
        assert server.terminate().seconds < GRACE
        call.leave()


@pytest.mark.parametrize("kind", ["uvicorn", "granian", "hypercorn", "gunicorn"])
def test_a_process_without_calls_ends_at_once_and_leaves_its_lifespan(kind: str) -> None:
    with site(kind) as server:
        server.event("lifespan", "entered")  # at startup: nothing has been called
        server.terminate(within=SECONDS + GRACE)
        assert len(server.events("lifespan", "left")) == 1
        assert server.complaints() == []


@pytest.mark.parametrize(
    ("kind", "options"),
    [("uvicorn", ("--timeout-graceful-shutdown", "2")), ("granian", ("--workers-kill-timeout", "2")), ("daphne", ())],
)
def test_a_client_that_does_not_read_holds_up_the_end_no_longer_than_the_server_s_own_limit(
    kind: str, options: tuple[str, ...]
) -> None:
    settings = {"MCP": {"AUTH": "none", "LIMITS": {"SHUTDOWN_GRACE": SHORT}}}
    with serve(kind, settings=settings, options=options) as server, Client(server.port, "/mcp", STATELESS) as client:
        client.call("tick", {"tag": "deaf", "times": 10**6, "pause": 0}).head()
        server.event("deaf", "started")
        server.terminate()
        assert server.event("deaf", "cancelled")
