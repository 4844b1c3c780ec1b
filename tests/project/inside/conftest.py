"""The database is the one that `test_commands.py` filled; every test's changes are rolled back."""

import pytest


@pytest.fixture(scope="session")
def django_db_setup() -> None:
    """Make no test database: the temporary one is there."""
