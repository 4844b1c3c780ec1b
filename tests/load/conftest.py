"""What the load tests run on. MCP_TEST_LOAD=1 has them run on every server, and has those run that take longer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.servers.databases import Database, new_postgres, new_sqlite
from tests.servers.harness import MOST_DIFFERENT, PLACES

AT_LENGTH = bool(os.environ.get("MCP_TEST_LOAD"))


class Place(NamedTuple):
    """Where a test runs."""

    kind: str
    database: Database


@contextmanager
def new_database(vendor: str) -> Iterator[Database]:
    """An empty one, gone afterwards."""
    if vendor == "postgresql" and not os.environ.get("MCP_TEST_POSTGRES"):
        pytest.skip("needs PostgreSQL: set MCP_TEST_POSTGRES")
    with new_sqlite() if vendor == "sqlite" else new_postgres() as database:
        yield database


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty database of each vendor."""
    with new_database(request.param) as database:
        yield database


@pytest.fixture(params=PLACES, ids="-".join)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Every kind of server, if there is time, and both databases."""
    kind, vendor = request.param
    if not AT_LENGTH and kind not in MOST_DIFFERENT:
        pytest.skip("takes its time: set MCP_TEST_LOAD")
    with new_database(vendor) as database:
        yield Place(kind, database)
