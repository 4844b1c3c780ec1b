"""What the load tests run on. MCP_TEST_LOAD=1 has them run on every server, and longer."""

import os
from collections.abc import Iterator

import pytest

from tests.servers.databases import Database, new_postgres, new_sqlite
from tests.servers.harness import SERVERS

AT_LENGTH = bool(os.environ.get("MCP_TEST_LOAD"))
MOST_DIFFERENT = ("uvicorn", "daphne")
"""Servers that differ most: in their event loop, their flow control, and what they do to a call that is left."""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty database of each vendor."""
    if request.param == "postgresql" and not os.environ.get("MCP_TEST_POSTGRES"):
        pytest.skip("needs PostgreSQL: set MCP_TEST_POSTGRES")
    with new_sqlite() if request.param == "sqlite" else new_postgres() as database:
        yield database


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind of server, if there is time."""
    if not AT_LENGTH and request.param not in MOST_DIFFERENT:
        pytest.skip("takes its time: set MCP_TEST_LOAD")
    name: str = request.param
    return name
