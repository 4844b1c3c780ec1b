"""The database is the demo's own, in the temporary directory; every test's changes are rolled back."""

import pytest
from django.core.management import call_command
from pytest_django import DjangoDbBlocker

COUNTRIES = ["CH", "FJ", "NZ"]


@pytest.fixture(scope="session", autouse=True)
def _no_records(django_db_setup: None) -> None:
    """Record no calls: the thread of the recorder would write beside the transactions of the tests."""
    from mcp_django import wiring  # once Django is set up
    from mcp_django.contrib.control_room.recording.recorder import RECORDER
    from mcp_django.runtime.calls.observer import remove_outcome_recorder

    remove_outcome_recorder(RECORDER.queue.record)
    wiring.PROCESS.lifecycle.loop_callbacks.discard(RECORDER.start_reports)


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: DjangoDbBlocker) -> None:
    """Make the tables and load three countries, in place of a test database."""
    with django_db_blocker.unblock():
        call_command("migrate", verbosity=0)
        call_command("loadairports", country=COUNTRIES, verbosity=0)
