"""The database is the demo's own, in the temporary directory; every test's changes are rolled back."""

import pytest
from django.core.management import call_command
from pytest_django import DjangoDbBlocker

COUNTRIES = ["CH", "FJ", "NZ"]


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: DjangoDbBlocker) -> None:
    """Make the tables and load three countries, in place of a test database."""
    with django_db_blocker.unblock():
        call_command("migrate", verbosity=0)
        call_command("loadairports", country=COUNTRIES, verbosity=0)
