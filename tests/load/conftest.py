"""Servers and databases that the load tests run on."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.servers.databases import Database, new_postgres, new_sqlite
from tests.support.waiting import WAIT_SECONDS

PLACES = [pytest.param("uvicorn-postgresql", marks=pytest.mark.postgres), "daphne-sqlite"]


class Place(NamedTuple):
    """A kind of server and a database."""

    kind: str
    database: Database


@contextmanager
def new_database(vendor: str) -> Iterator[Database]:
    """An empty one, gone afterwards."""
    with new_sqlite() if vendor == "sqlite" else new_postgres() as database:
        yield database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty database of each vendor."""
    with new_database(request.param) as database:
        yield database


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """The two servers that differ most, each on another database: neither meets the other in code of its own."""
    kind, vendor = request.param.split("-")
    with new_database(vendor) as database:
        yield Place(kind, database)


def wait_until_forgotten(left_over: Callable[[], object]) -> None:
    """Wait until nothing is left. A server keeps some things for a minute, which is as long as other waits last."""
    end = time.monotonic() + 3 * WAIT_SECONDS
    while found := left_over():
        assert time.monotonic() < end, found
        time.sleep(0.5)  # looking costs the server a collection of its garbage
