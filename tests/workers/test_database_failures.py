"""Two workers on a database that takes no more writes, or lacks a table."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.servers.client import HANDSHAKE
from tests.servers.databases import execute, new_postgres
from tests.support.waiting import WAIT_SECONDS
from tests.workers.client import UserClient, request
from tests.workers.harness import SITE, Workers, workers

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}},
}


@pytest.fixture
def alone() -> Iterator[Workers]:
    """Two workers on a database of their own."""
    with new_postgres(SITE) as database, workers(database, None) as running:
        yield running


async def initialize(port: int) -> tuple[int, str | None]:
    """The status of `initialize`, and its Retry-After."""
    async with asyncio.timeout(WAIT_SECONDS), UserClient("anna", HANDSHAKE).post(port, INITIALIZE) as stream:
        return stream.status, stream.headers.get("retry-after")


async def health(port: int) -> int:
    async with asyncio.timeout(WAIT_SECONDS), request(port, "GET", {}, path="/mcp/healthz") as stream:
        status: int = stream.status
        return status


async def healthy(port: int, expected: int) -> None:
    """Wait until the health check has this status."""
    async with asyncio.timeout(WAIT_SECONDS):
        while await health(port) != expected:
            await asyncio.sleep(0.1)


async def test_workers_on_a_read_only_database_are_overloaded_until_it_takes_writes(alone: Workers) -> None:
    name = alone.database["NAME"]
    execute(alone.database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    for port in alone.ports:
        status, retry = await initialize(port)
        assert (status, retry is not None) == (503, True)
    logs = [server.log() for server in alone.servers]
    assert ["Database unavailable" in log for log in logs] == [True, True]
    assert not any("Reference " in log for log in logs)

    execute(alone.database, f"SET TRANSACTION READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only")
    assert [await initialize(port) for port in alone.ports] == [(200, None), (200, None)]


async def test_workers_without_a_table_ask_for_migrate(alone: Workers) -> None:
    assert [await health(port) for port in alone.ports] == [200, 200]
    execute(alone.database, "ALTER TABLE mcp_django_session RENAME TO lost")
    assert [(await initialize(port))[0] for port in alone.ports] == [503, 503]
    execute(alone.database, "ALTER TABLE mcp_django_eventsequence RENAME TO lost_too")
    for port in alone.ports:
        await healthy(port, 503)
    assert ["manage.py migrate" in server.log() for server in alone.servers] == [True, True]

    execute(alone.database, "ALTER TABLE lost RENAME TO mcp_django_session")
    execute(alone.database, "ALTER TABLE lost_too RENAME TO mcp_django_eventsequence")
    for port in alone.ports:
        await healthy(port, 200)
    assert [(await initialize(port))[0] for port in alone.ports] == [200, 200]
