"""SIGTERM: what runs may finish, what takes too long is told, what was opened is closed, and the process ends.

Each test has servers of its own, since it ends them. A shutdown that goes well leaves no complaint in the log.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.servers.client import HANDSHAKE, STATELESS, Answer, Client, Request
from tests.servers.harness import DOORS, SERVERS, Server, serve, until

SECONDS = 3.0
"""How long the calls take that are to finish."""
GRACE = 10.0
SHORT = 1.0
"""A grace that nobody can finish in."""
LIFESPAN = "tests.servers.site.lifespan.noted_lifespan"
CLOSING = {"code": -32603, "message": "The server is shutting down"}
# hypercorn's workers hear nothing until its own time is over, which is 3 s unless it is told otherwise.
OPTIONS = {"hypercorn": ("--graceful-timeout", "15")}
MOUNTED = [(kind, False) for kind in SERVERS]
VIEW_ONLY = [(kind, True) for kind in ("uvicorn", "daphne", "granian", "gunicorn")]


@contextmanager
def site(kind: str, *, grace: float = GRACE, view_only: bool = False, workers: int = 1) -> Iterator[Server]:
    """A server of the site, with a lifespan and /healthz, behind both doors or without `mount`."""
    default = {"HEALTHZ": True, "LIFESPAN": LIFESPAN}
    settings = {"MCP": {"AUTH": "none", "LIMITS": {"SHUTDOWN_GRACE": grace}, "SERVERS": {"default": default}}}
    environ = {"SITE_DOORS": "view"} if view_only else {}
    with serve(kind, workers=workers, settings=settings, environ=environ, options=OPTIONS.get(kind, ())) as running:
        yield running


class Reading:
    """Answers that are being read, each in a thread."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._answers: dict[str, Future[Answer]] = {}

    def read(self, tag: str, request: Request) -> None:
        self._answers[tag] = self._pool.submit(request.answer)

    def answer(self, tag: str) -> Answer:
        return self._answers[tag].result(30)

    def tags(self) -> list[str]:
        return list(self._answers)


@contextmanager
def reading() -> Iterator[Reading]:
    with ThreadPoolExecutor(16) as pool:
        yield Reading(pool)


def begin(server: Server, answers: Reading, path: str, seconds: float, revision: str = STATELESS) -> None:
    """A silent call and one that streams, both begun."""
    client = Client(server.port, path, revision).__enter__()
    for tool in ("wait", "stream"):
        tag = f"{tool} {path} {revision}"
        answers.read(tag, client.call(tool, {"tag": tag, "seconds": seconds}))
        server.event(tag, "started")


def assert_lifespan_was_left_after_the_calls(server: Server) -> None:
    ended = max(event["at"] for event in server.events() if event["what"] in ("ended", "cancelled"))
    left = server.events("lifespan", "left")
    assert len(left) == len(server.events("lifespan", "entered")) > 0
    assert all(event["at"] >= ended for event in left)


def new_call(server: Server, path: str) -> Answer:
    return Client(server.port, path, STATELESS).call("fast").answer()


def health(server: Server, path: str) -> tuple[int, Any]:
    head = f"GET {path}/healthz HTTP/1.1\r\nHost: 10.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    answer = Request(server.port, head.encode()).answer()
    return answer.status, answer.messages[0]


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


def test_calls_without_a_client_are_waited_for_where_the_server_says_when_it_ends() -> None:
    with site("uvicorn") as server:
        client = Client(server.port, "/mcp", HANDSHAKE).__enter__()
        request = client.call("wait", {"tag": "left alone", "seconds": SECONDS})
        server.event("left alone", "started")
        request.leave()
        server.terminate()
        assert server.events("left alone", "ended")
        assert_lifespan_was_left_after_the_calls(server)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("uvicorn", ("--timeout-graceful-shutdown", "3")), ("granian", ("--workers-kill-timeout", "3")), ("daphne", ())],
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
