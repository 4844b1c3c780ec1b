"""Databases of the projects, by name in REAL_PROJECT_DATABASE."""

import os
from typing import Any

from tests.support import services


def sqlite() -> dict[str, Any]:
    """Return the DATABASES entry of a file."""
    options = {"timeout": 20, "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"}
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["REAL_PROJECT_DATABASE"],
        "OPTIONS": options,
    }


def postgres() -> dict[str, Any]:
    """Return the DATABASES entry of a database beside the one of the tests."""
    return {**services.postgres_database(), "NAME": os.environ["REAL_PROJECT_DATABASE"]}
