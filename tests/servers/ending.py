"""Servers that are about to be told to end, and answers that are being read meanwhile."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.servers.client import STATELESS, Answer, Client, Request
from tests.servers.harness import SERVERS, Server, serve

SECONDS = 3.0
"""How long the calls take that are to finish."""
GRACE = 10.0
LIFESPAN = "tests.servers.site.lifespan.noted_lifespan"
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
    tags = {tool: f"{tool} {path} {revision}" for tool in ("wait", "stream")}
    for tool, tag in tags.items():
        answers.read(tag, client.call(tool, {"tag": tag, "seconds": seconds}))
    for tag in tags.values():
        server.event(tag, "started")


def assert_lifespan_was_left_after_the_calls(server: Server) -> None:
    ended = max(event["at"] for event in server.events() if event["what"] in ("ended", "cancelled"))
    left = server.events("lifespan", "left")
    assert len(left) == len(server.events("lifespan", "entered")) > 0
    assert all(event["at"] >= ended for event in left)


def health(server: Server, path: str) -> tuple[int, Any]:
    head = f"GET {path}/healthz HTTP/1.1\r\nHost: 10.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    answer = Request(server.port, head.encode()).answer()
    return answer.status, answer.messages[0]
