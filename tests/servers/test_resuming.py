"""Streams of sessions on real servers: cut at any point, and resumed.

That the end of the process ends them is tested in `test_shutdown`.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.client import HANDSHAKE, Client, Request
from tests.servers.databases import Database, new_sqlite
from tests.servers.harness import DOORS, Server, serve
from tests.support.waiting import wait_until

LIMITS = {"KEEP_ALIVE": 1, "SSE_UPGRADE_AFTER": 0.05, "SHUTDOWN_GRACE": 60}
SETTINGS: dict[str, Any] = {"MCP": {"AUTH": "none", "LIMITS": LIMITS}}


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


def cut_and_resume(client: Client, tag: str, chance: random.Random, *, longest: int, pause: float) -> None:
    """Call, cut the stream again and again, and expect each message once and in order."""
    request = client.call("tick", {"tag": tag, "times": 60, "pause": pause})
    messages: list[dict[str, Any]] = []
    while not messages or "result" not in messages[-1]:
        messages += read(request, chance.randint(1, longest))
        if "result" not in messages[-1]:
            if chance.random() < 0.7:  # otherwise it looks as if it lived on
                request.leave(reset=chance.random() < 0.5)
            request = client.listen(request.last_id)
            assert request.head() == 200
    assert progress(messages) == list(range(60))
    assert len(messages) == 61


def test_a_stream_interrupted_repeatedly_arrives_once_and_in_order(server: Server, path: str) -> None:
    for seed in range(3):
        with Client(server.port, path, HANDSHAKE) as client:
            cut_and_resume(client, f"cut-{path}-{seed}", random.Random(seed), longest=15, pause=0.005)
    server.settle()


def test_disconnected_streams_are_released(server: Server, path: str) -> None:
    def left_over() -> dict[str, int]:
        kinds = server.probe(objects=True)["objects"]
        ours = ("SessionStream", "NumberedSource", "SSEBody", "SessionEventStream", "ReplayReader", "ReplayBuffer")
        return {kind: n for kind, n in kinds.items() if kind.rpartition(".")[2] in ours and kind.startswith("mcp")}

    for number in range(20):
        with Client(server.port, path, HANDSHAKE) as client:
            call = client.call("stream", {"tag": f"left-{path}-{number}", "seconds": 0.05})
            assert read(call, 1)
            own, again = client.listen(), client.listen(call.last_id)
            assert (own.head(), again.head()) == (200, 200)
            for request in (call, own, again):
                request.leave(reset=number % 2 == 0)
    server.settle()
    wait_until(lambda: not left_over(), left_over)


@pytest.fixture
def database() -> Iterator[Database]:
    """A database that outlives its server."""
    with new_sqlite() as entry:
        yield entry


@pytest.mark.parametrize(("kind", "door"), [("uvicorn", "asgi"), ("uvicorn", "view"), ("daphne", "asgi")])
def test_the_next_process_sends_the_missed_events(kind: str, door: str, database: Database) -> None:
    with (
        serve(kind, settings=SETTINGS, database=database) as server,
        Client(server.port, DOORS[door], HANDSHAKE) as client,
    ):
        call = client.call("tick", {"tag": "kept", "times": 20, "pause": 0.05})
        messages = read(call, 3)
        call.leave()
        server.terminate()
        assert server.complaints() == []
        with serve(kind, settings=SETTINGS, database=database) as following:
            client.port = following.port
            again = client.listen(call.last_id)
            assert again.head() == 200
            messages += again.events()
            assert progress(messages) == list(range(20))
            assert "result" in messages[-1]
            client.session = None


def test_a_stream_continues_on_any_worker() -> None:
    chance = random.Random(7)
    with serve("uvicorn", workers=2, settings=SETTINGS) as server:
        for path in DOORS.values():
            with Client(server.port, path, HANDSHAKE) as client:
                cut_and_resume(client, f"moved-{path}", chance, longest=20, pause=0.02)
