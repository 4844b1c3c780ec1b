"""The readiness of the database, which the health check reports."""

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder

from mcp_django.runtime import readiness
from mcp_django.runtime.events.event_log import EventLog
from mcp_django.runtime.readiness import QUERY_TIMEOUT_SECONDS, TRUST_SECONDS, DatabaseReadiness
from mcp_django.wiring import get_services
from tests.support.clock import Clock


def status(check: DatabaseReadiness) -> str:
    return async_to_sync(check.get_status)()


@pytest.mark.django_db
def test_a_database_without_the_newest_migration_is_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    check, recorder = DatabaseReadiness(get_services().log_executor), MigrationRecorder(connection)
    newest = max(name for app, name in recorder.applied_migrations() if app == "mcp_django")
    recorder.record_unapplied("mcp_django", newest)
    assert [status(check), status(check)] == ["unmigrated", "unmigrated"]
    assert len([record for record in caplog.records if "run 'manage.py migrate'" in record.getMessage()]) == 1

    recorder.record_applied("mcp_django", newest)
    assert status(check) == "ok"


@pytest.mark.django_db
def test_a_worker_is_ready_after_the_migrations_of_a_newer_release() -> None:
    MigrationRecorder(connection).record_applied("mcp_django", "9999_of_a_newer_release")
    assert status(DatabaseReadiness(get_services().log_executor)) == "ok"


@pytest.mark.django_db
def test_a_database_that_fails_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for error, expected in [
        (OperationalError("no such table: mcp_django_eventsequence"), "unmigrated"),
        (OperationalError("connection refused"), "unavailable"),
    ]:
        with subtests.test(error=error):

            def fail(log: EventLog, error: OperationalError = error) -> int:
                raise error

            monkeypatch.setattr(EventLog, "head", fail)
            caplog.clear()
            assert status(DatabaseReadiness(get_services().log_executor)) == expected
            (record,) = caplog.records
            assert record.exc_info is not None
            assert record.exc_info[1] is error


class SlowExecutor:
    """An executor whose functions end when the test lets them."""

    def __init__(self) -> None:
        self.started, self.answered = 0, asyncio.Event()

    def context(self, **options: Any) -> Any:
        return nullcontext()

    async def run(self, fn: Any) -> Any:
        self.started += 1
        await self.answered.wait()
        return readiness.DatabaseStatus.OK


async def test_many_health_checks_are_one_query(clock: Clock) -> None:
    executor: Any = SlowExecutor()
    check = DatabaseReadiness(executor)
    asked = asyncio.gather(*(check.get_status() for _ in range(50)))
    await clock.settle()
    executor.answered.set()
    assert {*await asked, await check.get_status()} == {"ok"}
    assert executor.started == 1
    await clock.advance(TRUST_SECONDS)
    assert (await check.get_status(), executor.started) == ("ok", 2)


async def test_a_hanging_database_is_not_ready_and_is_queried_once(clock: Clock) -> None:
    executor: Any = SlowExecutor()
    check = DatabaseReadiness(executor)
    for _ in range(3):
        asked = asyncio.ensure_future(check.get_status())
        await clock.advance(QUERY_TIMEOUT_SECONDS)
        assert await asked == "unavailable"
    executor.answered.set()
    await clock.settle()
    assert (await check.get_status(), executor.started) == ("ok", 1)
