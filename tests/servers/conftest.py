"""Servers as fixtures: one of each kind and database for the whole run, because starting one takes a second."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.servers.databases import Database, new_postgres
from tests.servers.harness import DOORS, Server, serve

# Streams are silent: the server notices a disconnect itself, not by the next message that it sends.
SETTINGS = {"MCP": {"AUTH": "none", "LIMITS": {"KEEP_ALIVE": 3600}}}


class ServerPool:
    """Servers that tests share, started when first asked for. Tests leave nothing running on them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[tuple[str, str], Server] = {}
        self._postgres: Database | None = None

    def get(self, kind: str, vendor: str = "sqlite") -> Server:
        """The server of a kind that works on a database of this vendor."""
        if (kind, vendor) not in self._running:
            database = None if vendor == "sqlite" else self.postgres()
            server = serve(kind, settings=SETTINGS, database=database)
            self._running[kind, vendor] = self._stack.enter_context(server)
        return self._running[kind, vendor]

    def postgres(self) -> Database:
        """The PostgreSQL database that they share."""
        if self._postgres is None:
            self._postgres = self._stack.enter_context(new_postgres())
        return self._postgres


class Place(NamedTuple):
    """A server, and the path of the endpoint that a test calls."""

    server: Server
    path: str


@pytest.fixture(scope="session")
def pool() -> Iterator[ServerPool]:
    """The servers of this run."""
    with ExitStack() as stack:
        yield ServerPool(stack)


@pytest.fixture(params=["uvicorn-asgi", "uvicorn-view", "daphne-asgi"])
def place(request: pytest.FixtureRequest, pool: ServerPool) -> Place:
    """The two servers that differ most, and the Django view on one of them."""
    kind, door = request.param.split("-")
    return Place(pool.get(kind), DOORS[door])


@pytest.fixture
def server(place: Place) -> Server:
    """The server of this test."""
    return place.server


@pytest.fixture
def path(place: Place) -> str:
    """The path of the endpoint on it."""
    return place.path
