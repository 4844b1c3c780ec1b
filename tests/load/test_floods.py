"""Floods, in which one side sends more than the other reads.

Memory stays bounded, and other clients are served.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.load.event_streams import EventStream
from tests.load.websockets import PING, PONG, WebSocket, frame
from tests.servers.client import STATELESS, Client
from tests.servers.harness import Server, serve
from tests.support.waiting import wait_until

TIMES, SIZE = 600, 100_000
"""60 MB, in messages of 100 KB."""
ROOM = 32 << 20
"""Bytes that a worker may grow by in a flood: the messages that wait, and what the server and the allocator keep."""
UNSENT_WAIT_SECONDS = 1.0
"""Seconds that a client may read nothing."""
BEHIND = 1013
PINGS = 5_000
LIMITS = {"SEND_BUFFER": 16, "SEND_TIMEOUT": UNSENT_WAIT_SECONDS, "KEEP_ALIVE": 1}
SETTINGS = {"MCP": {"AUTH": "tests.servers.site.people.anyone", "LIMITS": LIMITS}}
PATIENT = {"MCP": {"AUTH": "tests.servers.site.people.anyone", "LIMITS": LIMITS | {"SEND_TIMEOUT": 600}}}
CHANNELS: dict[str, Callable[[int], WebSocket | EventStream]] = {
    "websocket": lambda port: WebSocket(port, buffer=1 << 16),
    "sse": lambda port: EventStream(port, buffer=1 << 16),
}


class Watch:
    """The memory of a worker, measured again and again while others are served."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.pid = server.probe()["pid"]
        self.before = resident(self.pid)
        self.most = self.before
        self.looks = 0

    def look(self) -> None:
        """Call as another client, over HTTP."""
        with Client(self._server.port, "/mcp", STATELESS) as other:
            assert other.call("fast", {"number": 7}).answer().value == 7
        self.looks += 1

    @property
    def grown(self) -> int:
        """Bytes."""
        return self.most - self.before


def resident(pid: int) -> int:
    """The resident set of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@contextlib.contextmanager
def watched(server: Server) -> Iterator[Watch]:
    """Looks at the server until the block ends."""
    server.probe(objects=True)
    watch, done = Watch(server), threading.Event()
    watch.look()

    def go_on() -> None:
        while not done.wait(0.05):
            watch.most = max(watch.most, resident(watch.pid))
            watch.look()

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(go_on)
        try:
            yield watch
        finally:
            done.set()
        looking.result()  # raises if another client was not served
        watch.most = max(watch.most, resident(watch.pid))


@pytest.mark.parametrize(("channel", "tool"), [("websocket", "flood"), ("sse", "flood_from_thread")])
def test_a_client_that_reads_nothing_is_disconnected_and_costs_no_memory(channel: str, tool: str) -> None:
    with serve("uvicorn", settings=SETTINGS) as server, CHANNELS[channel](server.port) as client:
        with watched(server) as watch:
            client.call(tool, {"tag": tool, "times": TIMES, "size": SIZE})
            server.event(tool, "started")
            wait_until(lambda: not server.probe()["running"])
            wait_until(lambda: not server.listening())
        print(f"{channel}: {watch.grown >> 20} MB")
        # A cancelled handler on a thread runs on unless it checks; its messages are dropped.
        assert tool == "flood_from_thread" or server.events(tool, "cancelled")
        assert watch.grown < ROOM
        if isinstance(client, WebSocket):
            assert client.drained() in (BEHIND, None)
        server.settle()


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_client_that_reads_slowly_gets_everything_and_costs_no_memory(channel: str) -> None:
    """Uvicorn lets an application wait for a slow client (see `tests/servers/test_matrix.py`)."""
    times = TIMES
    with serve("uvicorn", settings=PATIENT) as server, CHANNELS[channel](server.port) as client:
        with watched(server) as watch:
            number = client.call("flood", {"tag": "slow", "times": times, "size": SIZE})
            for step in range(1, times + 1):
                message = client.receive()
                assert message is not None
                assert message["params"]["progress"] == step
                if step % 100 == 0:
                    time.sleep(UNSENT_WAIT_SECONDS / 4)
            assert client.answer(number)["result"]["structuredContent"] == {"result": "slow"}
        print(f"{channel}: {watch.grown >> 20} MB")
        assert watch.grown < ROOM
        server.settle()


def test_daphne_buffers_unread_messages_and_serves_other_clients() -> None:
    """Daphne buffers without a limit.

    It accepts all messages of an application, and cannot report that a client is behind. Unread messages are in its own
    buffers until the client reads them or leaves.
    """
    with serve("daphne", settings=SETTINGS) as server, WebSocket(server.port, buffer=1 << 16) as client:
        with watched(server) as watch:
            client.call("flood", {"tag": "kept", "times": TIMES, "size": SIZE})
            server.event("kept", "ended")
            print(f"daphne: {watch.grown >> 20} MB")
        client.leave("reset")
        with WebSocket(server.port) as other:
            assert other.value("fast", {"number": 3}) == 3
        wait_until(lambda: not server.listening())
        server.settle()


@pytest.mark.parametrize(
    ("kind", "reads"), [("uvicorn", "meanwhile"), ("uvicorn", "afterwards"), ("daphne", "afterwards")]
)
def test_thousands_of_pings_are_all_answered(kind: str, reads: str) -> None:
    with serve(kind, settings=SETTINGS) as server, WebSocket(server.port) as client, watched(server) as watch:
        pings = [{"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"} for number in range(PINGS)]
        data = b"".join(frame(json.dumps(ping).encode()) for ping in pings)
        sender = threading.Thread(target=client.socket.sendall, args=(data,))
        sender.start()
        if reads == "afterwards":
            sender.join()
        answers = []
        while len(answers) < PINGS and (message := client.receive()) is not None:
            answers.append(message["id"])
        sender.join()
        assert sorted(answers) == sorted(ping["id"] for ping in pings)
        print(f"{kind}: {watch.grown >> 20} MB")
        assert watch.grown < ROOM


@pytest.mark.parametrize("kind", ["uvicorn", "daphne"])
def test_thousands_of_pings_of_the_protocol_are_all_answered(kind: str) -> None:
    with serve(kind, settings=SETTINGS) as server, WebSocket(server.port) as client, watched(server):
        sender = threading.Thread(target=client.socket.sendall, args=(frame(b"now", PING) * PINGS,))
        sender.start()
        opcodes = [opcode for opcode, _ in (next(client.frames()) for _ in range(PINGS))]
        sender.join()
        assert set(opcodes) == {PONG}
        assert client.value("fast", {"number": 5}) == 5


def test_a_client_that_floods_and_reads_nothing_costs_no_memory(subtests: pytest.Subtests) -> None:
    """The client sends until the server stops reading or closes the connection."""
    call = {"name": "fast", "arguments": {"number": 1}}
    messages: dict[str, Callable[[int], bytes]] = {
        "garbage": lambda number: b"{}",
        "requests": lambda number: b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}' % number,
        "notifications": lambda number: b'{"jsonrpc":"2.0","method":"notifications/nonsense"}',
        "calls": lambda number: (
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}' % (number, json.dumps(call).encode())
        ),
        "cancellations": lambda number: (
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}' % number
        ),
    }
    with serve("uvicorn", settings=SETTINGS) as server:
        for what, message in messages.items():
            with subtests.test(what), WebSocket(server.port, buffer=1 << 16) as client:
                client.socket.settimeout(UNSENT_WAIT_SECONDS)
                with watched(server) as watch:
                    sent, end = 0, time.monotonic() + UNSENT_WAIT_SECONDS
                    with contextlib.suppress(OSError):
                        while time.monotonic() < end:
                            client.socket.sendall(b"".join(map(frame, map(message, range(sent, sent + 1000)))))
                            sent += 1000
                print(f"{what}: about {sent} went in, {watch.grown >> 20} MB")
                assert watch.grown < ROOM
                client.leave("reset")
                wait_until(lambda: not server.listening())
                server.settle()
