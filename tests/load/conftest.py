"""Servers and databases that the load tests run on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.servers.databases import Database, new_postgres, new_sqlite
from tests.servers.harness import PLACES


class Place(NamedTuple):
    """Where a test runs."""

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
    """Every kind of server, and both databases."""
    kind, vendor = request.param
    with new_database(vendor) as database:
        yield Place(kind, database)
