"""The clock of the database, which all processes share."""

import time

import pytest
from django.db import connection

from mcp_django.models import StreamEvent
from mcp_django.runtime.events import database_clock
from mcp_django.runtime.events.database_clock import MEASURE_INTERVAL_SECONDS, DatabaseClock
from mcp_django.runtime.events.event_log import EventDraft, EventLog
from tests.support.clock import Clock

AHEAD = 9000.0
MARGIN_SECONDS = 60.0
"""Time passes between two readings; the difference is minutes more than that."""


def test_a_process_uses_the_time_of_the_database_and_logs_the_difference_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    shared, differences = DatabaseClock(), [AHEAD, AHEAD, 0.1]
    monkeypatch.setattr(database_clock, "query_database_time", lambda: time.time() + differences[0])
    assert abs(shared.time() - time.time()) < MARGIN_SECONDS
    for expected in (AHEAD, AHEAD, 0.0):
        shared.measure()
        differences.pop(0)
        shared.measure()  # too early for another query
        assert abs(shared.time() - time.time() - expected) < MARGIN_SECONDS
        clock.move(MEASURE_INTERVAL_SECONDS)
    (record,) = caplog.records
    assert (record.levelname, record.args) == ("WARNING", (pytest.approx(-AHEAD, abs=MARGIN_SECONDS),))


@pytest.mark.django_db
def test_the_time_is_read_from_the_database() -> None:
    found = database_clock.query_database_time()
    if connection.vendor == "sqlite":
        assert found is None
    else:
        assert found is not None
        assert abs(found - time.time()) < 60


@pytest.mark.django_db
def test_events_of_a_process_with_a_wrong_clock_expire_like_others(clock: Clock) -> None:
    log = EventLog()
    clock.move(-3600)
    log.append([EventDraft("a", "message")])
    clock.move(2 * 3600)
    log.append([EventDraft("a", "message")])
    assert log.delete_old(max_age_seconds=600) == 0
    assert StreamEvent.objects.count() == 2
