"""Clients of WebSockets and of HTTP+SSE that leave at random moments, in every way: others are served, and nothing
is left.
"""

import contextlib
import random
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.load import event_streams, websockets
from tests.load.conftest import wait_until_forgotten
from tests.load.event_streams import EventStream, Refused
from tests.load.test_leaks import MOST
from tests.load.test_random_disconnects import ENDS, THREAD_NAMES, THREADS, at_rest
from tests.load.websockets import BINARY, CONTINUATION, Channel, WebSocket, frame, leave, upgrade
from tests.servers.client import HANDSHAKE, STATELESS, Client
from tests.servers.harness import Server, serve
from tests.support.waiting import WAIT_SECONDS, wait_until

CLIENTS = 16
CUTS = 112
WARM = 64
GROWTH = 8192
"""Bytes per channel that may be asked for and not given back."""
SECONDS = 600.0
"""Time of the calls if their clients stayed."""
TOOLS = ("wait", "stream", "poll", "sql", "async_sql", "talking_sql", "ask", "tick", "flood")
LIMITS = {
    "THREADS": THREADS,
    "THREAD_QUEUE": 1000,
    "SESSIONS_PER_OWNER": 1000,
    "MAX_STREAMS_PER_OWNER": 1000,
    "KEEP_ALIVE": 1,
}
SETTINGS = {"MCP": {"AUTH": "tests.servers.site.people.anyone", "LIMITS": LIMITS}}


class LeavingClient:
    """One client of sockets, which disconnects repeatedly. Its number is the seed of its actions."""

    def __init__(self, server: Server, number: int) -> None:
        self.server, self.port, self.number, self.random = server, server.port, number, random.Random(number)

    def run(self, cuts: int) -> Counter[str]:
        """Close so many sockets. Return how often at which moment."""
        seen: Counter[str] = Counter()
        for cut in range(cuts):
            moment = self.random.choice(self.moments())
            getattr(self, moment)(f"{self.number}-{cut}")
            seen[moment] += 1
            if self.random.random() < 0.1:
                self.complete_call(cut)
        return seen

    def moments(self) -> tuple[str, ...]:
        return (
            "within_the_handshake",
            "before_the_answer",
            "at_once",
            "within_initialize",
            "within_a_frame",
            "within_a_message",
            "breaking_the_protocol",
            *("during_calls",) * 6,
            *("during_a_question",) * 2,
            *("during_a_listen",) * 2,
        )

    def complete_call(self, number: int) -> None:
        """Be served to the end."""
        with self.opened() as client:
            assert client.value(self.random.choice(["fast", "echo_sql"]), {"number": number}) == number
            self.go(client)

    def opened(self) -> Any:
        return WebSocket(self.port, self.random.choice([HANDSHAKE, STATELESS]))

    def go(self, client: Any) -> None:
        client.leave(self.random.choice(websockets.WAYS))

    def within_the_handshake(self, tag: str) -> None:
        data = upgrade(self.port)
        self._connect_and_leave(data[: self.random.randrange(len(data))])

    def before_the_answer(self, tag: str) -> None:
        self._connect_and_leave(upgrade(self.port))

    def _connect_and_leave(self, data: bytes) -> None:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_SECONDS)
        connection.sendall(data)
        time.sleep(self.random.choice([0, 0, 0.005]))
        leave(connection, reset=self.random.random() < 0.5)

    def at_once(self, tag: str) -> None:
        self.go(WebSocket(self.port))

    def within_initialize(self, tag: str) -> None:
        client = WebSocket(self.port, HANDSHAKE)
        self._begin_to_initialize(client)

    def _begin_to_initialize(self, client: Any) -> None:
        who = {"name": "tests", "version": "1"}
        client.request("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": who})
        time.sleep(self.random.choice([0, 0.001, 0.003]))
        self.go(client)

    def within_a_frame(self, tag: str) -> None:
        with self.opened() as client:
            data = frame(b'{"jsonrpc":"2.0","id":1,"method":"ping"}' + b" " * self.random.choice([0, 1 << 17]))
            client.socket.sendall(data[: self.random.randrange(1, len(data))])
            leave(client.socket, reset=self.random.random() < 0.5)

    def within_a_message(self, tag: str) -> None:
        with self.opened() as client:
            client.socket.sendall(frame(b'{"jsonrpc":', final=False) + frame(b'"2.0",', CONTINUATION, final=False))
            self.go(client)

    def breaking_the_protocol(self, tag: str) -> None:
        with self.opened() as client, contextlib.suppress(OSError):
            client.socket.sendall(self.random.choice([frame(b"x", BINARY), frame(b"x", 5), b"\xff" * 20]))
            self.go(client)

    def during_calls(self, tag: str) -> None:
        """Send one to four requests, perhaps cancel them, and disconnect perhaps before reading the responses."""
        with self.opened() as client:
            ids = [self.begin(client, f"{tag}-{number}") for number in range(self.random.randrange(1, 5))]
            time.sleep(self.random.choice([0, self.random.uniform(0, 0.005), self.random.uniform(0, 0.05)]))
            if self.random.random() < 0.2:
                client.notify("notifications/cancelled", {"requestId": self.random.choice(ids)})
            self.go(client)

    def begin(self, client: Channel, tag: str) -> int:
        # Daphne would buffer unread messages.
        tool = self.random.choice([tool for tool in TOOLS if tool != "flood" or self.server.kind != "daphne"])
        arguments: dict[str, Any] = {"tag": tag}
        if tool == "tick":
            arguments |= {"times": 10**6, "pause": 0.002}
        elif tool == "flood":
            arguments |= {"times": 10**6, "size": 10_000}
        elif tool != "ask":
            arguments["seconds"] = SECONDS
        return client.call(tool, arguments)

    def during_a_question(self, tag: str) -> None:
        with WebSocket(self.port, HANDSHAKE) as client:
            self.ask(client, tag)
            self.go(client)

    def ask(self, client: Channel, tag: str) -> None:
        client.call("ask", {"tag": tag})
        question = client.until("elicitation/create")
        if self.random.random() < 0.3:
            client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})

    def during_a_listen(self, tag: str) -> None:
        with WebSocket(self.port, STATELESS) as client:
            client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            if self.random.random() < 0.5:
                client.until("notifications/subscriptions/acknowledged")
            self.go(client)


class LeavingStreamClient(LeavingClient):
    """The same over HTTP+SSE, which has the handshake era only."""

    def moments(self) -> tuple[str, ...]:
        return (
            "within_the_handshake",
            "before_the_answer",
            "at_once",
            "within_initialize",
            "within_a_post",
            *("during_calls",) * 4,
            *("during_a_question",) * 2,
        )

    def opened(self) -> Any:
        return EventStream(self.port)

    def go(self, client: Any) -> None:
        client.leave(self.random.choice(event_streams.WAYS))

    def within_the_handshake(self, tag: str) -> None:
        data = event_streams.request("GET", self.port, event_streams.PATH, b"")
        self._connect_and_leave(data[: self.random.randrange(len(data))])

    def before_the_answer(self, tag: str) -> None:
        self._connect_and_leave(event_streams.request("GET", self.port, event_streams.PATH, b""))

    def at_once(self, tag: str) -> None:
        self.go(EventStream(self.port))

    def within_initialize(self, tag: str) -> None:
        self._begin_to_initialize(self.opened())

    def within_a_post(self, tag: str) -> None:
        with self.opened() as client:
            body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
            data = event_streams.request("POST", self.port, client.endpoint, body)
            self._connect_and_leave(data[: self.random.randrange(1, len(data))])
            self.go(client)

    def begin(self, client: Channel, tag: str) -> int:
        # A stream that its client does not read takes no more requests: a POST gets 503.
        try:
            return super().begin(client, tag)
        except Refused as refused:
            if refused.status != 503:
                raise
            return 0

    def during_a_question(self, tag: str) -> None:
        with self.opened() as client:
            self.ask(client, tag)
            self.go(client)


LEAVERS: dict[str, Callable[[Server, int], LeavingClient]] = {"websocket": LeavingClient, "sse": LeavingStreamClient}


@pytest.mark.parametrize(("kind", "channel"), [("uvicorn", "websocket"), ("daphne", "websocket"), ("uvicorn", "sse")])
def test_channels_closed_at_random_leave_no_objects(kind: str, channel: str) -> None:
    with serve(kind, settings=SETTINGS) as server:
        leave_many(server, channel, WARM, first=1000)
        before = resting(server)
        seen = leave_many(server, channel, CUTS)
        after = resting(server)
        with Client(server.port, "/mcp", STATELESS) as other:
            assert other.call("fast", {"number": 8}).answer().value == 8
        outcomes = Counter(event["what"] for event in server.events())
        print(f"{kind}, {channel}: {dict(seen)}; {dict(outcomes)}")
        assert seen.total() >= CUTS
        assert set(after["threads"]) <= set(before["threads"]) | THREAD_NAMES
        assert set(after["connections"]) <= THREAD_NAMES
        ends = {event["tag"] for event in server.events() if event["what"] in ENDS}
        assert ends == {event["tag"] for event in server.events(what="started")}
        assert not open_sessions(server)
        assert not server.complaints()
        wait_until_forgotten(lambda: surplus(before, server))
        grown = server.probe(objects=True)["allocated"] - before["allocated"]
        print(f"{grown / seen.total():.0f} bytes per channel more")
        assert grown < GROWTH * seen.total()


def leave_many(server: Server, channel: str, cuts: int, *, first: int = 0) -> Counter[str]:
    """Close so many sockets with several clients at once. Return the counts of their actions."""
    leavers = [LEAVERS[channel](server, first + number) for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(lambda leaver: leaver.run(cuts // CLIENTS + 1), leavers), Counter[str]())


def resting(server: Server) -> dict[str, Any]:
    """Wait until nothing runs, and no channel and no session is open. Return the live objects."""
    wait_until(lambda: not server.listening(), server.probe)
    at_rest(server)
    wait_until(lambda: not open_sessions(server), lambda: open_sessions(server))
    return server.probe(objects=True)


def open_sessions(server: Server) -> int:
    """Rows of sessions that have not ended."""
    with contextlib.closing(sqlite3.connect(server.database["NAME"], timeout=20)) as connection:
        statement = "SELECT count(*) FROM mcp_django_session WHERE terminated_at IS NULL"
        return int(connection.execute(statement).fetchone()[0])


def surplus(before: dict[str, Any], server: Server) -> dict[str, int]:
    """The kinds of objects of ours of which there are more than there were."""
    after = server.probe(objects=True)["objects"]
    found = {name: count - before["objects"].get(name, 0) for name, count in after.items()}
    return {
        name: count
        for name, count in found.items()
        if name.startswith("mcp_django.") and count > 0 and after[name] > MOST.get(name, 0)
    }
