"""SIGTERM: running calls finish within the grace period, streams close, new calls are refused, and the process ends.

Each test has servers of its own, since it ends them. A shutdown that goes well leaves no complaint in the log.
"""

import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.servers.client import HANDSHAKE, STATELESS, Answer, Client, Request
from tests.servers.harness import DOORS, SERVERS, Server, serve
from tests.servers.legacy_client import LegacyClient
from tests.servers.test_listening import ID, listen
from tests.support.waiting import WAIT_SECONDS, wait_until

GRACE_SECONDS = 600.0
"""A grace that no test waits for."""
SHORT_GRACE_SECONDS = 0.5
LIFESPAN = "tests.servers.site.lifespan.noted_lifespan"
# hypercorn's workers do not learn of the signal until its own timeout, which is 3 s by default.
OPTIONS = {"hypercorn": ("--graceful-timeout", "30")}
PROBE_TIMEOUT_SECONDS = 5
"""Limit of a probe: a server that takes a connection as it closes may leave it without an answer.

Servers give far more time to calls.
"""
SERVERS_WITH_WORKERS = ("uvicorn", "gunicorn", "granian")
"""Servers whose workers all finish their calls."""
GUIDE = Path(__file__).parents[2] / "docs" / "run" / "deploy.md"
CLOSING = {"code": -32603, "message": "The server is shutting down"}


@contextmanager
def serve_site(
    kind: str, *, grace: float = GRACE_SECONDS, view_only: bool = False, workers: int = 1
) -> Iterator[Server]:
    """A server of the site, with a lifespan and /healthz, behind both doors or without `mount`."""
    default = {"HEALTHZ": True, "LIFESPAN": LIFESPAN}
    settings = {"MCP": {"AUTH": "none", "LIMITS": {"SHUTDOWN_GRACE": grace}, "SERVERS": {"default": default}}}
    environ = {"SITE_DOORS": "view"} if view_only else {}
    with serve(kind, workers=workers, settings=settings, environ=environ, options=OPTIONS.get(kind, ())) as running:
        yield running


class AnswerReader:
    """Answers that are being read, each in a thread."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._answers: dict[str, Future[Answer]] = {}

    def read(self, tag: str, request: Request) -> None:
        """Read the answer to a request that is known by this tag."""
        self._answers[tag] = self._pool.submit(request.answer)

    def answers(self) -> dict[str, Answer]:
        """Wait for all answers."""
        return {tag: answer.result(WAIT_SECONDS) for tag, answer in self._answers.items()}

    def __len__(self) -> int:
        return len(self._answers)


@pytest.fixture
def reader() -> Iterator[AnswerReader]:
    """Answers that this test reads."""
    with ThreadPoolExecutor(16) as pool:
        yield AnswerReader(pool)


def begin(server: Server, reader: AnswerReader, path: str, revision: str = STATELESS) -> None:
    """Begin a silent call and one that streams. Both wait until they are released."""
    client = Client(server.port, path, revision).__enter__()
    for streams in (False, True):
        tag = f"{'streams' if streams else 'silent'} {path} {revision}"
        reader.read(tag, client.call("hold", {"tag": tag, "streams": streams}))
        server.event(tag, "started")


def is_closing(server: Server, path: str) -> bool:
    """Whether the server refuses connections, or answers that it is draining."""
    try:
        with urlopen(f"http://127.0.0.1:{server.port}{path}/healthz", timeout=PROBE_TIMEOUT_SECONDS):
            return False
    except HTTPError as refusal:
        refusal.close()
        return refusal.code == 503
    except OSError:
        return True


def signal_and_release(server: Server, path: str) -> int:
    """Send SIGTERM, let calls end once the server has taken it, and wait for the end. Returns the exit status."""
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: is_closing(server, path), "the server does not take the signal")
    server.release()
    return server.process.wait(WAIT_SECONDS)


def health(server: Server, path: str) -> tuple[int, Any]:
    head = f"GET {path}/healthz HTTP/1.1\r\nHost: 10.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    answer = Request(server.port, head.encode()).answer()
    return answer.status, answer.messages[0]


def assert_lifespan_was_left_after_the_calls(server: Server) -> None:
    ended = max(event["at"] for event in server.events() if event["what"] in ("ended", "cancelled"))
    left = server.events("lifespan", "left")
    assert len(left) == len(server.events("lifespan", "entered")) > 0
    assert all(event["at"] >= ended for event in left)


@pytest.mark.parametrize(
    ("kind", "view_only"), [*((kind, False) for kind in SERVERS), ("uvicorn", True), ("daphne", True)]
)
def test_calls_finish_and_streams_are_closed(kind: str, view_only: bool, reader: AnswerReader) -> None:
    paths = [DOORS["view"]] if view_only else list(DOORS.values())
    with serve_site(kind, view_only=view_only) as server, ExitStack() as stack:
        for path in paths:
            begin(server, reader, path)
        begin(server, reader, DOORS["view"], HANDSHAKE)
        changes, of_sessions, legacy = [], [], []
        if kind != "hypercorn":  # it cuts them
            changes = [listen(Client(server.port, path, STATELESS)) for path in paths]
            of_sessions = [Client(server.port, path, HANDSHAKE).__enter__().listen() for path in paths]
            assert [stream.head() for stream in of_sessions] == [200] * len(paths)
            legacy = [stack.enter_context(LegacyClient(server.port, f"{path}/sse")) for path in paths]
        code = signal_and_release(server, paths[0])
        assert code in (0, -signal.SIGTERM)
        for tag, answer in reader.answers().items():
            assert answer.value == tag
        for stream in changes:
            (last,) = stream.events()
            assert last["result"]["resultType"] == "complete"
            assert last["result"]["_meta"][ID] == last["id"] == 1
            stream.leave()
        for stream in of_sessions:
            assert list(stream.events()) == []
            stream.leave()
        assert all(client.is_over() for client in legacy)
        if kind != "granian" or not view_only:  # which waits for nothing but its connections
            assert_lifespan_was_left_after_the_calls(server)
        expected = re.compile("ifespan")
        assert [line for line in server.complaints() if not expected.search(line)] == []


@pytest.mark.parametrize("kind", SERVERS_WITH_WORKERS)
def test_all_workers_finish_their_calls(kind: str, reader: AnswerReader) -> None:
    with serve_site(kind, workers=2) as server:
        client = Client(server.port, "/mcp", STATELESS)
        # The first worker answers while the second is still starting, and would get all the calls.
        wait_until(lambda: len({event["pid"] for event in server.events("lifespan", "entered")}) == 2)
        while len({event["pid"] for event in server.events(what="started")}) < 2:
            tag = f"hold-{len(reader)}"
            assert len(reader) < 16, "one worker gets all the calls"
            reader.read(tag, client.call("hold", {"tag": tag}))
            server.event(tag, "started")
        signal_and_release(server, "/mcp")
        for tag, answer in reader.answers().items():
            assert answer.value == tag
        assert len({event["pid"] for event in server.events("lifespan", "left")}) == 2


def test_hypercorn_aborts_the_calls_of_all_workers_once_one_has_ended(reader: AnswerReader) -> None:
    with serve_site("hypercorn", workers=2) as server:
        wait_until(lambda: len({event["pid"] for event in server.events("lifespan", "entered")}) == 2)
        request = Client(server.port, "/mcp", STATELESS).call("hold", {"tag": "busy"})
        server.event("busy", "started")
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(WAIT_SECONDS)
        assert not server.events("busy", "ended")
        request.leave()


def test_the_guide_has_several_workers_only_where_all_finish_their_calls() -> None:
    commands = dict(re.findall(r"^\| (\w+) \| `([^`]+)` \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
    workers = {kind: re.search(r"(?:-w|--workers) (\d+)", command) for kind, command in commands.items()}
    assert set(commands) == {kind.partition("-")[0] for kind in SERVERS}
    assert {kind for kind, number in workers.items() if number and int(number[1]) > 1} == set(SERVERS_WITH_WORKERS)


def test_shutdown_waits_for_calls_without_a_client_where_the_lifespan_ends_last() -> None:
    with serve_site("uvicorn") as server:
        client = Client(server.port, "/mcp", HANDSHAKE).__enter__()
        request = client.call("hold", {"tag": "left alone"})
        server.event("left alone", "started")
        request.leave()
        signal_and_release(server, "/mcp")
        assert server.events("left alone", "ended")
        assert_lifespan_was_left_after_the_calls(server)


@pytest.mark.parametrize(
    ("kind", "view_only"), [("uvicorn", False), ("daphne", False), ("granian", False), ("daphne", True)]
)
def test_calls_longer_than_the_grace_period_get_an_error(kind: str, view_only: bool, reader: AnswerReader) -> None:
    with serve_site(kind, grace=SHORT_GRACE_SECONDS, view_only=view_only) as server:
        for path in [DOORS["view"]] if view_only else DOORS.values():
            begin(server, reader, path)
        with Client(server.port, DOORS["view"], HANDSHAKE) as client:
            messages = client.call("ask", {"tag": "ask"}).events()
            assert next(messages)["method"] == "elicitation/create"
            server.terminate()
            client.session = None  # it ended with the server
            assert [message["error"] for message in messages] == [CLOSING]
        for tag, answer in reader.answers().items():
            assert answer.message["error"] == CLOSING, tag
            assert answer.status == (503 if tag.startswith("silent") else 200)
            assert server.events(tag, "cancelled"), tag
        if kind != "granian" or not view_only:  # which waits for nothing but its connections
            assert_lifespan_was_left_after_the_calls(server)


@pytest.mark.parametrize(("kind", "view_only"), [("daphne", False), ("uvicorn", True)])
def test_during_shutdown_new_calls_are_refused_and_health_is_draining(
    kind: str, view_only: bool, reader: AnswerReader
) -> None:
    """On servers that run the lifespan last; others close their sockets at once."""
    path = DOORS["view"] if view_only else DOORS["asgi"]
    with serve_site(kind, view_only=view_only) as server:
        assert health(server, path) == (200, {"status": "ok"})
        begin(server, reader, path)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: health(server, path) == (503, {"status": "draining"}))
        refused = Client(server.port, path, STATELESS).call("fast").answer()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.message["error"]["message"] == "The server is shutting down; try again later"
        server.release()
        server.process.wait(WAIT_SECONDS)
        for tag, answer in reader.answers().items():
            assert answer.value == tag


def test_a_second_signal_ends_the_server_at_once() -> None:
    with serve_site("daphne") as server:
        call = Client(server.port, "/mcp", STATELESS).call("hold", {"tag": "hold"})
        server.event("hold", "started")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: health(server, "/mcp")[0] == 503)
        server.terminate()
        call.leave()


@pytest.mark.parametrize(("kind", "options"), [("uvicorn", ("--timeout-graceful-shutdown", "1")), ("daphne", ())])
def test_a_client_that_does_not_read_delays_the_end_up_to_the_limit_of_the_server(
    kind: str, options: tuple[str, ...]
) -> None:
    settings = {"MCP": {"AUTH": "none", "LIMITS": {"SHUTDOWN_GRACE": SHORT_GRACE_SECONDS}}}
    with serve(kind, settings=settings, options=options) as server, Client(server.port, "/mcp", STATELESS) as client:
        client.call("tick", {"tag": "unread", "times": 10**6, "pause": 0}).head()
        server.event("unread", "started")
        server.terminate()
        server.event("unread", "cancelled")
