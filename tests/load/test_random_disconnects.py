"""Disconnects of clients at random moments.

Clients disconnect in every way while others stay. The others are served, and no state of the disconnected ones is left.
"""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from mcp_django.wiring import LOG_THREADS
from tests.load.conftest import Place, wait_until_forgotten
from tests.servers.client import HANDSHAKE, STATELESS, Client
from tests.servers.harness import DOORS, Server, serve
from tests.support.waiting import wait_until

CLIENTS = 16
CUTS = 128
THREADS = 4
THREAD_NAMES = {f"mcp-thread-{number}" for number in range(THREADS)} | {
    f"mcp-log-{number}" for number in range(LOG_THREADS)
}
FOLLOWS = "mcp_django.runtime.events.follower.LogFollower._follow_log"
"""The task that follows the event log while a session is trusted, or a stream of one may be resumed."""
ENDS = ("ended", "cancelled", "failed")
OF_SESSIONS = {
    "mcp_django.runtime.events.follower.TopicSubscription",
    "mcp_django.runtime.sessions.store.CachedSession",
    "mcp_django.runtime.streams.replay_buffer.ReplayBuffer",
    "mcp_django.server.calls.session.ServerSession",
}
LIMITS = {
    "THREADS": THREADS,
    "IN_FLIGHT": 1000,
    "SESSIONS_PER_OWNER": 100,
    "SSE_UPGRADE_AFTER": 0.02,
    "KEEP_ALIVE": 0.01,
}
STATELESS_SECONDS = {
    "wait": 600.0,
    "stream": 600.0,
    "poll": 600.0,
    "sql": 600.0,
    "async_sql": 600.0,
    "talking_sql": 600.0,
}
"""Tools and their time if the client stayed."""
HANDSHAKE_SECONDS = {"wait": 0.05, "stream": 0.05, "poll": 0.05, "sql": 0.01, "async_sql": 0.01, "talking_sql": 0.01}
"""Tools and their time in sessions, where a call runs to its end after a disconnect, too."""


class LeavingClients:
    """One client of each transport and era, which disconnect repeatedly. Their number is the seed of their actions."""

    def __init__(self, server: Server, number: int, stack: ExitStack) -> None:
        self.number, self.random = number, random.Random(number)
        self.clients = [
            stack.enter_context(Client(server.port, path, revision))
            for path in DOORS.values()
            for revision in (STATELESS, HANDSHAKE)
        ]

    def run(self, cuts: int) -> Counter[str]:
        """Disconnect from so many calls. Return how often in which way."""
        seen: Counter[str] = Counter()
        for cut in range(cuts):
            seen[self.leave(f"{self.number}-{cut}")] += 1
            if self.random.random() < 0.2:
                self.complete_call(self.random.randrange(10**6))
        return seen

    def leave(self, tag: str) -> str:
        client = self.random.choice(self.clients)
        seconds = STATELESS_SECONDS if client.revision == STATELESS else HANDSHAKE_SECONDS
        tool, tag = self.random.choice([*seconds, "tick"]), f"{client.revision}-{tag}"
        arguments: dict[str, Any] = {"tag": tag}
        arguments |= {"times": 20, "pause": 0.002} if tool == "tick" else {"seconds": seconds[tool]}
        moment = self.random.choice(["at once", "soon", "later", "within the request", "after an event"])
        request = client.call(tool, arguments, part=self.random.random() if moment == "within the request" else 1.0)
        if moment in ("soon", "later"):
            time.sleep(self.random.uniform(0, 0.005 if moment == "soon" else 0.05))
        elif moment == "after an event" and tool in ("stream", "talking_sql", "tick"):
            next(request.events())
        if self.random.random() < 0.2:
            request.half_close()
        request.leave(reset=self.random.random() < 0.5)
        return f"{client.revision} {moment}"

    def complete_call(self, number: int) -> None:
        tool = self.random.choice(["fast", "echo_sql"])
        assert self.random.choice(self.clients).call(tool, {"number": number}).answer().value == number


def test_random_disconnects_leak_no_objects(place: Place) -> None:
    settings = {"MCP": {"AUTH": "tests.servers.site.people.anyone", "LIMITS": LIMITS}}
    with serve(place.kind, settings=settings, database=place.database) as server:
        with ExitStack() as stack:
            leavers = [LeavingClients(server, number, stack) for number in range(CLIENTS)]
            for leaver in leavers:
                leaver.complete_call(leaver.number)
            before = at_rest(server)
            with ThreadPoolExecutor(CLIENTS) as pool:
                seen = sum(pool.map(lambda leaver: leaver.run(CUTS // CLIENTS + 1), leavers), Counter[str]())
            after = at_rest(server, before)
        outcomes = Counter(event["what"] for event in server.events())
        print(f"{place.kind}: {seen.total()} left; {dict(outcomes)}")
        assert seen.total() >= CUTS
        assert after["tasks"].get(FOLLOWS, 0) <= 1
        assert set(after["threads"]) <= set(before["threads"]) | THREAD_NAMES
        assert set(after["connections"]) <= THREAD_NAMES
        assert sum(after["connections"].values()) <= len(THREAD_NAMES)
        ends = {event["tag"]: event["what"] for event in server.events() if event["what"] in ENDS}
        assert ends.keys() == {event["tag"] for event in server.events(what="started")}
        assert {end for tag, end in ends.items() if tag.startswith(HANDSHAKE)} == {"ended"}
        assert not server.complaints()
        wait_until_forgotten(lambda: kept(server))


def at_rest(server: Server, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Wait until nothing runs, and return the state of the server.

    Temporary threads have ended by then, and so have tasks that did not exist `before`.
    """
    found: dict[str, Any] = {}

    def resting() -> bool:
        # This state is returned, because a task may read the event log or write a time in the next moment.
        found.update(server.probe())
        passing = [name for name in found["threads"] if name.startswith(("ThreadPoolExecutor", "mcp-interrupt"))]
        tasks = [name for name in others(found) if name.startswith(("mcp_django.", "django."))]
        more = before is not None and others(found) - others(before)
        return not (found["running"] or found["in_flight"] or passing or tasks or more)

    wait_until(resting, lambda: found)
    return found


def others(found: dict[str, Any]) -> Counter[str]:
    """Count the tasks that do not belong to a session."""
    # Hypercorn keeps three tasks for a connection until it has been idle for 5 seconds.
    tasks = found["tasks"].items()
    return Counter({name: n for name, n in tasks if name != FOLLOWS and not name.startswith("hypercorn.")})


def kept(server: Server) -> dict[str, int]:
    """Count the remains of ended sessions."""
    found = server.probe(objects=True)
    return {name: n for name, n in (found["objects"] | found["tasks"]).items() if name in OF_SESSIONS | {FOLLOWS}}
