"""After many calls, answered and left, there are as many objects as after a few, and as much memory."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mcp_django.wiring import LOG_THREADS
from tests.load.conftest import Place, wait_until_forgotten
from tests.servers.client import HANDSHAKE, STATELESS, Client
from tests.servers.harness import DOORS, Server, serve
from tests.support.waiting import wait_until

WARM = 400
CALLS = 600
CLIENTS = 4
SLACK = CALLS // 10
"""Objects of one kind that is not ours, more or less: timers of sessions that ended within the minute, for one."""
ALL_SLACK = CALLS // 2
"""Objects of all kinds, more or less. One that each call leaves behind is twice as many."""
ROUND = 25
"""Calls of one client, and of one session."""
GROWTH = 2048
"""Bytes per call that may be asked for and not given back."""
LOOKS, PAUSE = 3, 0.5
"""How often, and after how many seconds each, there must be no less than there was: servers look every second for what
is over.
"""
THREADS = 4
MOST = dict.fromkeys(
    ("mcp_django.runtime.threads.pool.PoolThread", "mcp_django.runtime.threads.sql_cancellation.StatementGuard"),
    THREADS + LOG_THREADS,
)
"""Kinds of objects of ours that are made when they are first needed, and stay: how many there may be."""
# asyncio keeps a timer that was cancelled, and the context it was set in, until it would have been due.
LIMITS = {"THREADS": THREADS, "KEEP_ALIVE": 1, "SSE_UPGRADE_AFTER": 1, "ELICITATION_TIMEOUT": 1}
ANSWERED = {"fast": {}, "echo_sql": {"number": 0}, "tick": {"times": 3, "pause": 0}, "wait": {"seconds": 0}}
LEFT = {"wait": {"seconds": 0.01}, "stream": {"seconds": 0.01}, "poll": {"seconds": 0.01}, "ask": {}}


def test_many_calls_leak_no_objects_and_no_memory(place: Place) -> None:
    settings = {"MCP": {"AUTH": "tests.servers.site.people.anyone", "LIMITS": LIMITS}}
    with serve(place.kind, settings=settings, database=place.database) as server:
        load(server, WARM)
        before = settled(server)
        load(server, CALLS)
        # Servers free ended connections at intervals, daphne every second; the event log is followed some seconds
        # longer than there are sessions; asyncio keeps the cancelled timers of sessions and connections for a minute.
        wait_until_forgotten(lambda: lingering(before, rest(server)))
        after = rest(server)
        objects, bytes_ = (after[what] - before[what] for what in ("all_objects", "allocated"))
        print(f"{server.kind}: {CALLS} calls, {objects} objects, {bytes_ / CALLS:.0f} bytes per call more")
        assert bytes_ < GROWTH * CALLS
        assert not server.complaints()


def load(server: Server, calls: int) -> None:
    """So many calls, by clients of both eras through both doors, of which a few are left; and streams that are left, or
    left and gone on with.
    """
    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in pool.map(lambda number: one_round(server, number), range(calls // ROUND)):
            pass


def one_round(server: Server, number: int) -> None:
    chance = random.Random(number)
    path, revision = chance.choice(list(DOORS.values())), chance.choice([STATELESS, HANDSHAKE])
    with Client(server.port, path, revision) as client:
        for call in range(ROUND):
            arguments: dict[str, Any]
            tag = {"tag": f"{number}-{call}"}
            if call % 8 == 0:
                open_and_leave_stream(client, chance, tag)
            elif chance.random() < 0.2:
                tool, arguments = chance.choice(list(LEFT.items()))
                client.call(tool, tag | arguments).leave(reset=chance.random() < 0.5)
            else:
                tool, arguments = chance.choice(list(ANSWERED.items()))
                answer = client.call(tool, arguments if tool in ("fast", "echo_sql") else tag | arguments).answer()
                assert answer.status == 200
                assert "result" in answer.message


def open_and_leave_stream(client: Client, chance: random.Random, tag: dict[str, Any]) -> None:
    """Open a stream that has no end of its own, and leave it; or leave that of a call, and have the rest."""
    if client.session is None:
        request = client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        next(request.events())
        request.leave(reset=chance.random() < 0.5)
        return
    if chance.random() < 0.5:
        request = client.listen()
        assert request.head() == 200
        request.leave(reset=chance.random() < 0.5)
        return
    request = client.call("tick", tag | {"times": 3, "pause": 0})
    next(request.events())
    request.leave(reset=chance.random() < 0.5)
    answer = client.listen(request.last_id).answer()
    assert "result" in answer.message


def surplus(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """The kinds of objects of which there are more now, and how many."""
    found = {name: count - before["objects"].get(name, 0) for name, count in after["objects"].items()}
    found = {name: count for name, count in found.items() if count > (0 if name.startswith("mcp_django.") else SLACK)}
    return {name: count for name, count in found.items() if after["objects"][name] > MOST.get(name, 0)}


def lingering(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Return the growing kinds of objects, or the growing total."""
    objects = after["all_objects"] - before["all_objects"]
    return surplus(before, after) or ({} if objects < ALL_SLACK else {"all": objects})


def settled(server: Server) -> dict[str, Any]:
    """Return the counts of live objects once nothing runs and the counts no longer fall."""
    found, looks = rest(server), 0
    while looks < LOOKS:
        time.sleep(PAUSE)
        last, found = found, rest(server)
        looks = looks + 1 if found["all_objects"] > last["all_objects"] - SLACK else 0
    return found


def rest(server: Server) -> dict[str, Any]:
    """Return the counts of live objects once nothing runs."""

    def resting() -> bool:
        found = server.probe()
        return not (found["running"] or found["in_flight"] or found["listening"])

    wait_until(resting, server.probe)
    return server.probe(objects=True)
