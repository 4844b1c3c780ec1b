"""The table of docs/run/asgi-servers.md: each cell is compared with a running server.

There is a probe for each row, all of them on one process for each server; a cell has the result of the probe.
"""

import inspect
import itertools
import json
import re
import socket
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import daphne.server
import httpx
import hypercorn.config
import pytest
import uvicorn
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from tests.servers.client import HANDSHAKE, META, STATELESS, Client
from tests.servers.databases import ROOT
from tests.servers.harness import Server, serve
from tests.support.waiting import WAIT_SECONDS, wait_until

PAGE = ROOT / "docs" / "run" / "asgi-servers.md"
COLUMNS = {
    "uvicorn": ("uvicorn", "uvicorn-h11"),
    "gunicorn, uvicorn workers": ("gunicorn",),
    "granian": ("granian",),
    "hypercorn": ("hypercorn",),
    "daphne": ("daphne",),
    "`runserver`, daphne": ("runserver-daphne",),
    "`runserver`": ("runserver",),
    "gunicorn, WSGI": ("gunicorn-sync", "gunicorn-gthread"),
}
"""Each column of the table, and the servers that it speaks of."""
SETTINGS = {
    "MCP": {
        "AUTH": "none",
        "LIMITS": {"SEND_TIMEOUT": 0.5},
        "SERVERS": {"default": {"LIFESPAN": "tests.servers.site.lifespan.noted_lifespan"}},
    }
}
SOCKETS_AT = "/mcp"
"""The door beside which WebSocket is offered."""
FLOOD = {"times": 1024, "size": 64 * 1024}
"""More than fits between two processes."""
_tags = map("probe-{}".format, itertools.count())


def table() -> dict[str, dict[str, str]]:
    """Return the cells by column and row, without their footnotes."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    footnote = re.compile(r" \(\d+\)$")
    return {column: {row[0]: footnote.sub("", row[at]) for row in rows} for at, column in enumerate(head) if at}


def yes(observed: bool | None) -> str:
    """None: there is nothing to ask."""
    return {True: "yes", False: "no", None: "-"}[observed]


def through_every_door(probe: Callable[[Server, str], bool | None]) -> Callable[[Server], str]:
    """A probe that all of a server's doors must agree on."""

    def probed(server: Server) -> str:
        (observed,) = {probe(server, door) for door in server.doors}
        return yes(observed)

    return probed


def lifespan_begins(server: Server) -> str:
    """Has to be asked first: nothing has been called yet."""
    if server.events("lifespan", "entered"):
        return "start"
    for number in range(2):
        assert call(server, server.doors[0], "fast", {"number": number}) == number
    return "call" if len(server.events("lifespan", "entered")) == 1 else "each call"


def answers_in_json(server: Server, door: str) -> bool:
    for revision in (HANDSHAKE, STATELESS):
        with Client(server.port, door, revision) as client:
            answer = client.call("fast", {"number": 5}).answer()
            assert (answer.headers["content-type"], answer.value) == ("application/json", 5)
    return True


def streams_answers(server: Server, door: str) -> bool:
    with Client(server.port, door, STATELESS) as client:
        *said, _ = client.call("tick", {"tag": next(_tags), "times": 3}).answer().messages
    return [message["method"] for message in said] == ["notifications/progress"] * 3


def sends_changes(server: Server, door: str) -> bool:
    """On the stream of a session, and on one of changes; both or neither."""
    with Client(server.port, door, HANDSHAKE) as client:
        stream = client.listen()
        of_session = stream.head() == 200
        if of_session:
            client.call("change", {"kind": "tools"}).answer()
            assert next(stream.events())["method"] == "notifications/tools/list_changed"
    with Client(server.port, door, STATELESS) as client:
        stream = client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        of_changes = stream.head() == 200
        if of_changes:
            said = stream.events()
            assert next(said)["method"] == "notifications/subscriptions/acknowledged"
            client.call("change", {"kind": "tools"}).answer()
            assert next(said)["method"] == "notifications/tools/list_changed"
    assert of_session is of_changes
    return of_session


def call_seconds(server: Server, row: str) -> float:
    """Return the time of a call with a disconnect; it must not end by itself where a disconnect ends it."""
    (column,) = (column for column, kinds in COLUMNS.items() if server.kind in kinds)
    return 600 if table()[column][row] == "yes" else 0.3


def leaving_ends_calls(server: Server, door: str) -> bool:
    ends, seconds = set(), call_seconds(server, "A client that leaves ends its call")
    for reset in (False, True):
        tag = next(_tags)
        with Client(server.port, door, STATELESS) as client:
            request = client.call("wait", {"tag": tag, "seconds": seconds})
            server.event(tag, "started")
            request.leave(reset=reset)
            ends.add(end(server, tag))
    (what,) = ends
    return what == "cancelled"


def waits_for_slow_readers(server: Server, door: str) -> bool | None:
    """Send more than the client reads: the handler waits (and is ended at last), or all messages are in memory."""
    tag = next(_tags)
    with Client(server.port, door, STATELESS) as client:
        request = client.call("flood", {"tag": tag, **FLOOD})
        waited = end(server, tag) == "cancelled"
        request.head()
        streamed = request.headers["content-type"].startswith("text/event-stream")
        request.leave(reset=True)
    return waited if streamed else None


def offers_legacy_sse(server: Server, door: str) -> bool:
    who = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=WAIT_SECONDS) as client,
        client.stream("GET", f"{door}/sse", headers={"Accept": "text/event-stream"}) as stream,
    ):
        if stream.status_code != 200:
            assert stream.status_code == 405
            return False
        data = (line[6:] for line in stream.iter_lines() if line.startswith("data: "))
        assert client.post(next(data), json=request("initialize", who)).status_code == 202
        return bool(json.loads(next(data))["result"]["protocolVersion"] == "2024-11-05")


def offers_websocket(server: Server) -> str:
    try:
        with open_socket(server) as ws:
            ws.send(json.dumps(make_call("fast", {"number": 6})))
            return yes(json.loads(ws.recv(WAIT_SECONDS))["result"]["structuredContent"] == {"result": 6})
    except InvalidStatus as refusal:
        return "no" if refusal.response.status_code == 404 else repr(refusal)


def over_websocket(probe: Callable[[Server], str]) -> Callable[[Server], str]:
    """A probe of sockets, where there are any."""
    return lambda server: probe(server) if SOCKETS_AT in server.doors else "-"


def breaking_ends_calls(server: Server) -> str:
    ends, seconds = set(), call_seconds(server, "A socket that breaks ends its calls")
    for clean in (True, False):
        tag = next(_tags)
        with open_socket(server) as ws:
            ws.send(json.dumps(make_call("wait", {"tag": tag, "seconds": seconds})))
            server.event(tag, "started")
            if not clean:
                ws.socket.shutdown(socket.SHUT_RDWR)
        ends.add(end(server, tag))
    (what,) = ends
    return yes(what == "cancelled")


def waits_for_slow_sockets(server: Server) -> str:
    tag = next(_tags)
    protocol = ClientProtocol(parse_uri(get_address(server)))
    with socket.create_connection(("127.0.0.1", server.port), WAIT_SECONDS) as unread:
        protocol.send_request(protocol.connect())
        unread.sendall(b"".join(protocol.data_to_send()))
        while protocol.state is State.CONNECTING:
            protocol.receive_data(unread.recv(1))
        protocol.send_text(json.dumps(make_call("flood", {"tag": tag, **FLOOD})).encode())
        unread.sendall(b"".join(protocol.data_to_send()))
        return yes(end(server, tag) == "cancelled")


def longest_message(server: Server) -> str:
    for mebibytes in (4, 1):
        try:
            with open_socket(server) as ws:
                ws.send(make_call_of_size(mebibytes * 2**20 - 1))
                assert "result" in json.loads(ws.recv(WAIT_SECONDS))
        except ConnectionClosed:
            continue
        return f"{mebibytes} MiB"
    raise AssertionError("it takes no long message at all")


def closes_with_message_too_big(server: Server) -> str:
    with open_socket(server) as ws:
        try:
            ws.send(make_call_of_size(4 * 2**20 + 1))
            while True:
                ws.recv(WAIT_SECONDS)
        except ConnectionClosed as closed:
            return yes(closed.rcvd is not None and closed.rcvd.code == 1009)


def sends_refusal_status(server: Server) -> str:
    """A subprotocol that is not ours is a bad request, which is not the 403 that servers answer by themselves."""
    try:
        with open_socket(server, "graphql-ws"):
            raise AssertionError("it was accepted")
    except InvalidStatus as refusal:
        return yes(refusal.response.status_code == 400)


def pings(server: Server) -> str:
    """Return the interval of the server's own defaults, which is too long to wait for."""
    every = {
        "uvicorn": uvicorn.Config("").ws_ping_interval,
        "gunicorn": uvicorn.Config("").ws_ping_interval,
        "hypercorn": hypercorn.config.Config.websocket_ping_interval,
        "daphne": inspect.signature(daphne.server.Server).parameters["ping_interval"].default,
        "granian": None,  # it has no such thing
    }
    (seconds,) = (every[name] for name in every if name in server.kind)
    return "never" if seconds is None else f"{seconds:g} s"


def ends(server: Server) -> tuple[str, str]:
    """Return whether a call finishes, and the close code of a socket. It ends the server, so it runs last."""
    if SOCKETS_AT not in server.doors:
        return lets_calls_finish(server), "-"
    with open_socket(server) as ws:
        if server.kind == "hypercorn" and sys.version_info >= (3, 12):
            ws.close()  # its `Server.wait_closed()` waits there for clients to leave (hypercorn/asyncio/run.py)
            return lets_calls_finish(server), "nothing"
        finished = lets_calls_finish(server)
        try:
            while True:
                ws.recv(WAIT_SECONDS)
        except ConnectionClosed as closed:
            return finished, "nothing" if closed.rcvd is None else str(closed.rcvd.code)


def lets_calls_finish(server: Server) -> str:
    tag = next(_tags)
    with Client(server.port, server.doors[0], STATELESS) as client, ThreadPoolExecutor(1) as pool:
        request = client.call("wait", {"tag": tag, "seconds": 2})
        server.event(tag, "started")
        # Read at the same time: hypercorn waits for connections that are kept open.
        answer = pool.submit(request.answer)
        server.terminate()
        try:
            return yes(answer.result(WAIT_SECONDS).value == tag)
        except ConnectionError:
            return "no"


PROBES: Mapping[str, Callable[[Server], str]] = {
    "Lifespans are entered at": lifespan_begins,
    "Answers in JSON": through_every_door(answers_in_json),
    "Answers as streams": through_every_door(streams_answers),
    "Streams of sessions and of changes": through_every_door(sends_changes),
    "HTTP+SSE": through_every_door(offers_legacy_sse),
    "A client that leaves ends its call": through_every_door(leaving_ends_calls),
    "A client that does not read is waited for": through_every_door(waits_for_slow_readers),
    "WebSocket": offers_websocket,
    "A socket that breaks ends its calls": over_websocket(breaking_ends_calls),
    "A socket that is not read is waited for": over_websocket(waits_for_slow_sockets),
    "The longest message of a socket": over_websocket(longest_message),
    "A longer one is refused with 1009": over_websocket(closes_with_message_too_big),
    "A socket that is refused gets the status": over_websocket(sends_refusal_status),
    "Pings of its own": over_websocket(pings),
}
"""Each row of the table in the order in which they can be asked; but see `LAST`."""
LAST = ("Running calls finish when the process is told to end", "Sockets are then closed with")


def request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params)}


def make_call(tool: str, arguments: Mapping[str, Any], **meta: Any) -> dict[str, Any]:
    """A stateless request that wants progress."""
    own = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}, "progressToken": "token"}
    return request("tools/call", {"name": tool, "arguments": dict(arguments), "_meta": {**own, **meta}})


def make_call_of_size(size: int) -> str:
    """A call of so many bytes."""
    bare = json.dumps(make_call("fast", {}, **{"tests/padding": ""}))
    return json.dumps(make_call("fast", {}, **{"tests/padding": "x" * (size - len(bare))}))


def get_address(server: Server) -> str:
    return f"ws://127.0.0.1:{server.port}{SOCKETS_AT}/ws"


def open_socket(server: Server, subprotocol: str = "mcp") -> ClientConnection:
    """A client's socket."""
    return connect(get_address(server), subprotocols=[Subprotocol(subprotocol)], max_size=None, proxy=None)


def call(server: Server, door: str, tool: str, arguments: Mapping[str, Any]) -> Any:
    with Client(server.port, door, STATELESS) as client:
        return client.call(tool, arguments).answer().value


def end(server: Server, tag: str) -> str:
    """How a handler's work ended: "ended" or "cancelled"."""
    ends = ("ended", "cancelled")
    wait_until(lambda: any(event["what"] in ends for event in server.events(tag)))
    return next(event["what"] for event in server.events(tag) if event["what"] in ends)


@pytest.mark.parametrize(("column", "kind"), [(column, kind) for column, kinds in COLUMNS.items() for kind in kinds])
def test_each_cell_of_the_documentation_matches_the_server(column: str, kind: str) -> None:
    with serve(kind, settings=SETTINGS) as server:
        observed = {row: probe(server) for row, probe in PROBES.items()}
        observed |= zip(LAST, ends(server), strict=True)
    said = table()[column]
    assert observed.keys() == said.keys()
    wrong = {row: (found, said[row]) for row, found in observed.items() if found not in said[row].split(" or ")}
    assert not wrong


def test_the_page_has_each_server_and_each_row_once() -> None:
    said = table()
    assert list(said) == list(COLUMNS)
    labels = re.findall(r"^\| ([^|]+?) +\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(labels) == sorted([*PROBES, *LAST])
