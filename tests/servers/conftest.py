"""Servers as fixtures: one of each kind and database for the whole run, because starting one takes a second."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.servers.databases import Database, new_postgres
from tests.servers.harness import DOORS, PLACES, SERVERS, Server, serve


class Fleet:
    """Servers with the site's own settings, started when first asked for. They are shared: leave nothing running."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[tuple[str, str], Server] = {}
        self._postgres: Database | None = None

    def get(self, kind: str, vendor: str) -> Server:
        """The server of a kind that works on a database of this vendor."""
        if (kind, vendor) not in self._running:
            database = None if vendor == "sqlite" else self.postgres()
            self._running[kind, vendor] = self._stack.enter_context(serve(kind, database=database))
        return self._running[kind, vendor]

    def postgres(self) -> Database:
        """The PostgreSQL database that they share."""
        if self._postgres is None:
            self._postgres = self._stack.enter_context(new_postgres())
        return self._postgres


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    """The servers of this run."""
    with ExitStack() as stack:
        yield Fleet(stack)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, fleet: Fleet) -> Server:
    """Every kind of server, on SQLite."""
    return fleet.get(request.param, "sqlite")


@pytest.fixture(params=PLACES)
def working(request: pytest.FixtureRequest, fleet: Fleet) -> Server:
    """Every kind of server on SQLite, and those that differ most on PostgreSQL."""
    return fleet.get(*request.param)


@pytest.fixture(params=DOORS)
def path(request: pytest.FixtureRequest) -> str:
    """Both doors."""
    return DOORS[request.param]
