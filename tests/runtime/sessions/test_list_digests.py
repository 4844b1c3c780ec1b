import asyncio
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.models import Session as Row
from mcp_django.protocol.revisions import LATEST_HANDSHAKE
from mcp_django.runtime.sessions import list_digests as module
from mcp_django.runtime.sessions.list_digests import DatabaseListDigestStore
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.calls.session import ServerSession

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_DELAY_SECONDS", 0.0)


def known(row: Row) -> ServerSession:
    """Return the session as one process has it."""
    return ServerSession(
        key="k", owner="ada", revision=LATEST_HANDSHAKE, client_info={}, client_capabilities={}, pk=row.pk
    )


async def written(lists: DatabaseListDigestStore, session: ServerSession, **digests: str) -> None:
    session.list_digests |= digests
    lists.save(session)
    while lists._pending_writes or lists._tasks:
        await asyncio.sleep(0)


@pytest.fixture
def row() -> Row:
    row = Row(server="default", revision=LATEST_HANDSHAKE.version, owner="ada", expires=timezone.now())
    row.generate_key()
    row.save()
    return row


async def test_processes_share_the_digests(row: Row) -> None:
    here, there = DatabaseListDigestStore(LeasingExecutor()), DatabaseListDigestStore(LeasingExecutor())
    await written(here, known(row), tools="a")
    await written(there, known(row), prompts="b")
    assert await here.load(known(row)) == {"tools": "a", "prompts": "b"}


async def test_lists_of_one_moment_are_written_in_one_query(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    merges: list[Any] = []
    merge = module._merge_digests
    monkeypatch.setattr(module, "_merge_digests", lambda pk, lists: (merges.append(lists), merge(pk, lists)))
    lists, session = DatabaseListDigestStore(LeasingExecutor()), known(row)
    session.list_digests["tools"] = "a"
    lists.save(session)
    await written(lists, session, prompts="b")
    assert merges == [{"tools": "a", "prompts": "b"}]


def test_unchanged_digests_are_not_written_again(row: Row) -> None:
    module._merge_digests(row.pk, {"tools": "a"})
    with CaptureQueriesContext(connection) as statements:
        module._merge_digests(row.pk, {"tools": "a"})
    assert [statement["sql"].split()[0] for statement in statements.captured_queries] == ["SELECT"]


def test_an_ended_session_stores_no_digests(row: Row) -> None:
    Row.objects.filter(pk=row.pk).update(terminated_at=timezone.now())
    module._merge_digests(row.pk, {"tools": "a"})
    assert module._read_digests(row.pk) == {}
