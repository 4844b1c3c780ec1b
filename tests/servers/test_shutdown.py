"""SIGTERM: what runs may finish, what was opened is closed, and the process ends.

Each test has servers of its own, since it ends them. A shutdown that goes well leaves no complaint in the log.
"""

import signal

import pytest

from tests.servers.client import HANDSHAKE, STATELESS, Client
from tests.servers.ending import (
    GRACE,
    MOUNTED,
    SECONDS,
    VIEW_ONLY,
    assert_lifespan_was_left_after_the_calls,
    begin,
    reading,
    site,
)
from tests.servers.harness import DOORS, until


@pytest.mark.parametrize(("kind", "view_only"), [*MOUNTED, *VIEW_ONLY])
def test_an_open_stream_and_a_call_of_three_seconds_finish(kind: str, view_only: bool) -> None:
    with site(kind, view_only=view_only) as server, reading() as answers:
        for path in (DOORS["view"],) if view_only else DOORS.values():
            begin(server, answers, path, SECONDS)
        begin(server, answers, DOORS["view"], SECONDS, HANDSHAKE)
        ended = server.terminate()
        for tag in answers.tags():
            assert answers.answer(tag).value == tag
        assert ended.seconds < GRACE
        assert ended.code in (0, -signal.SIGTERM)
        if kind != "granian" or not view_only:  # which waits for nothing but its connections
            assert_lifespan_was_left_after_the_calls(server)
        assert [line for line in server.complaints() if "ifespan" not in line] == []


@pytest.mark.parametrize("kind", ["uvicorn", "gunicorn", "granian"])
def test_all_workers_finish_what_they_have(kind: str) -> None:
    with site(kind, workers=2) as server, reading() as answers:
        client = Client(server.port, "/mcp", STATELESS)
        # The first worker answers while the second is still starting, and would get all the calls.
        until(lambda: len({event["pid"] for event in server.events("lifespan", "entered")}) == 2)
        while len({event["pid"] for event in server.events(what="started")}) < 2:
            tag = f"wait-{len(answers.tags())}"
            answers.read(tag, client.call("wait", {"tag": tag, "seconds": SECONDS}))
            server.event(tag, "started")
            assert len(answers.tags()) < 16, "one worker gets all the calls"
        ended = server.terminate()
        for tag in answers.tags():
            assert answers.answer(tag).value == tag
        assert ended.seconds < GRACE
        assert len({event["pid"] for event in server.events("lifespan", "left")}) == 2


def test_calls_without_a_client_are_waited_for_where_the_server_says_when_it_ends() -> None:
    with site("uvicorn") as server:
        client = Client(server.port, "/mcp", HANDSHAKE).__enter__()
        request = client.call("wait", {"tag": "left alone", "seconds": 1.0})
        server.event("left alone", "started")
        request.leave()
        server.terminate()
        assert server.events("left alone", "ended")
        assert_lifespan_was_left_after_the_calls(server)
