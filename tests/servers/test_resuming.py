"""Streams of sessions on real servers: cut at any point, gone on with, and ended in order."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.client import HANDSHAKE, Client, Request
from tests.servers.databases import Database, new_sqlite
from tests.servers.harness import DOORS, Server, serve, until

SHORT = {"KEEP_ALIVE": 1, "SSE_UPGRADE_AFTER": 0.05, "SHUTDOWN_GRACE": 10}
SETTINGS: dict[str, Any] = {"MCP": {"AUTH": "none", "LIMITS": SHORT}}


@pytest.fixture(scope="module", params=["uvicorn", "uvicorn-h11", "daphne"])
def site(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of this module's own, whose silent streams soon say something."""
    with serve(request.param, settings=SETTINGS) as server:
        yield server


@pytest.fixture(params=DOORS.values(), ids=DOORS)
def path(request: pytest.FixtureRequest) -> str:
    """Both doors."""
    found: str = request.param
    return found


def read(request: Request, most: int) -> list[dict[str, Any]]:
    """So many messages, or all there are before the end."""
    found = []
    for message in request.events():
        found.append(message)
        if len(found) == most:
            break
    return found


def progress(messages: list[dict[str, Any]]) -> list[int]:
    return [int(message["params"]["progress"]) for message in messages if "method" in message]


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_cut_again_and_again_is_heard_once_and_in_order(site: Server, path: str, seed: int) -> None:
    chance = random.Random(seed)
    with Client(site.port, path, HANDSHAKE) as client:
        request = client.call("tick", {"tag": f"cut-{path}-{seed}", "times": 60, "pause": 0.005})
        heard: list[dict[str, Any]] = []
        while not heard or "result" not in heard[-1]:
            heard += read(request, chance.randint(1, 15))
            if "result" not in heard[-1]:
                if chance.random() < 0.7:  # otherwise it looks as if it lived on
                    request.leave(reset=chance.random() < 0.5)
                request = client.listen(request.last_id)
                assert request.head() == 200
        assert progress(heard) == list(range(60))
        assert len(heard) == 61
    site.settle()


def test_streams_that_are_left_leave_nothing_behind(site: Server, path: str) -> None:
    def left_over() -> dict[str, int]:
        kinds = site.probe(objects=True)["objects"]
        ours = ("OwnStream", "Events", "EventStream", "View", "Following", "Reader", "Ring")
        return {kind: n for kind, n in kinds.items() if kind.rpartition(".")[2] in ours and kind.startswith("mcp")}

    for number in range(30):
        with Client(site.port, path, HANDSHAKE) as client:
            call = client.call("stream", {"tag": f"left-{path}-{number}", "seconds": 0.05})
            assert read(call, 1)
            own, again = client.listen(), client.listen(call.last_id)
            assert (own.head(), again.head()) == (200, 200)
            for request in (call, own, again):
                request.leave(reset=number % 2 == 0)
    site.settle()
    # What follows the news of sessions does so for a few seconds more.
    until(lambda: not {k: n for k, n in left_over().items() if "Following" not in k}, otherwise=left_over)


@pytest.mark.parametrize("kind", ["uvicorn", "daphne", "gunicorn"])
def test_a_server_that_ends_ends_the_streams_of_sessions(kind: str, path: str) -> None:
    with serve(kind, settings=SETTINGS) as server, Client(server.port, path, HANDSHAKE) as client:
        own = client.listen()
        assert own.head() == 200
        ended = server.terminate()
        client.session = None  # there is nobody to end it with
        assert read(own, 100) == []
        assert ended.seconds < 8
        assert server.complaints() == []


@pytest.fixture
def database() -> Iterator[Database]:
    """A database that outlives its server."""
    with new_sqlite() as entry:
        yield entry


@pytest.mark.parametrize("kind", ["uvicorn", "daphne"])
def test_the_next_process_serves_what_was_not_heard(kind: str, path: str, database: Database) -> None:
    with (
        serve(kind, settings=SETTINGS, database=database) as server,
        Client(server.port, path, HANDSHAKE) as client,
    ):
        call = client.call("tick", {"tag": "kept", "times": 20, "pause": 0.05})
        heard = read(call, 3)
        call.leave()
        server.terminate()
        assert server.complaints() == []
        with serve(kind, settings=SETTINGS, database=database) as following:
            client.port = following.port
            again = client.listen(call.last_id)
            assert again.head() == 200
            heard += again.events()
            assert progress(heard) == list(range(20))
            assert "result" in heard[-1]
            client.session = None


def test_a_stream_is_gone_on_with_at_whichever_worker_is_hit(path: str) -> None:
    chance = random.Random(7)
    with (
        serve("uvicorn", workers=2, settings=SETTINGS) as server,
        Client(server.port, path, HANDSHAKE) as client,
    ):
        for number in range(2):
            request = client.call("tick", {"tag": f"moved-{number}", "times": 60, "pause": 0.02})
            heard: list[dict[str, Any]] = []
            while not heard or "result" not in heard[-1]:
                heard += read(request, chance.randint(3, 20))
                if "result" not in heard[-1]:
                    request.leave(reset=chance.random() < 0.5)
                    request = client.listen(request.last_id)
                    assert request.head() == 200
            assert progress(heard) == list(range(60))
