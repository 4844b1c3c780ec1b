"""Migrated databases, made once and copied: to migrate takes seconds, to copy takes milliseconds.

A template is kept in the checkout's cache directory (SQLite) or beside the test databases (PostgreSQL) under a key of
all that shapes its tables and rows, so that a change of a migration or a model makes another one.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connections

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "tests"
DISTRIBUTIONS = ("Django", "django-oauth-toolkit")
"""Distributions that bring migrations."""
PREFIX = "mcp_template_"


@functools.cache
def template_key(*parts: str) -> str:
    """Return a key of all migrations, models and settings of the checkout, of Django's release, and of `parts`."""
    digest = hashlib.sha256()
    for part in (*parts, *(f"{name} {version(name)}" for name in DISTRIBUTIONS)):
        digest.update(part.encode() + b"\0")
    for folder in ("mcp_django", "project", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if {"migrations", "models", "settings"} & {*path.parts, *path.stem.split("_")}:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Let one process at a time into the block."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sqlite_template(key: str, migrate: Callable[[Path], None]) -> Path:
    """Return a migrated file, which is not to be changed; `migrate` makes it at a path if it is missing."""
    found = CACHE / f"{key}.sqlite3"
    with locked(key):
        if not found.exists():
            draft = found.with_suffix(f".{os.getpid()}")
            migrate(draft)
            # The mode is kept in the file; with its last connection, everything is in the one file.
            with closing(sqlite3.connect(draft)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
            draft.rename(found)
    return found


def postgres_template(key: str, url: str, migrate: Callable[[str], None]) -> str:
    """Return the name of a migrated database, which has no connections; `migrate` fills it if it is missing."""
    name = PREFIX + key
    with locked(key):
        if not execute(url, "SELECT 1 FROM pg_database WHERE datname = %s", [name]):
            draft = f"{name}_{os.getpid()}"
            execute(url, f"CREATE DATABASE {draft}")
            migrate(draft)
            try:
                execute(url, f"ALTER DATABASE {draft} RENAME TO {name}")
            except psycopg.errors.DuplicateDatabase:  # another checkout was first
                execute(url, f"DROP DATABASE {draft}")
    return name


def execute(url: str, statement: str, values: list[object] | None = None) -> list[tuple[Any, ...]]:
    """Run one statement on the server that a postgres:// URL names, in its database `postgres`; return the rows."""
    server = urlsplit(url)._replace(path="/postgres").geturl()
    with psycopg.connect(server, autocommit=True) as connection:
        cursor = connection.execute(statement, values)  # type: ignore[call-overload]
        return [] if cursor.description is None else cursor.fetchall()


def create_test_database(url: str, suffix: str) -> Callable[[], None]:
    """Give Django's default connection a database of this process; return the function that drops it.

    `url` is used if the settings name PostgreSQL; `suffix` distinguishes the processes that share the tests.
    """
    connection = connections["default"]
    if connection.vendor == "sqlite":
        name = str(connection.settings_dict["NAME"])
        shutil.copyfile(sqlite_template(_default_key(), _migrate_default), name)
        return connections.close_all
    template = postgres_template(_default_key(), url, lambda draft: _migrate_default(Path(draft)))
    name = f"test_{connection.settings_dict['NAME']}{suffix}"
    execute(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    execute(url, f"CREATE DATABASE {name} TEMPLATE {template}")
    _use(name)

    def drop() -> None:
        connections.close_all()
        execute(url, f"DROP DATABASE {name} WITH (FORCE)")

    return drop


def _default_key() -> str:
    """Return the key of the settings in use, and of the release of each package that has an app in them."""
    modules = {app.split(".", 1)[0] for app in settings.INSTALLED_APPS}
    names = {name for module, names in packages_distributions().items() if module in modules for name in names}
    return template_key(
        settings.SETTINGS_MODULE.removesuffix("_postgres"), *(f"{name} {version(name)}" for name in sorted(names))
    )


def _use(name: str) -> None:
    """Point the default connection at a database."""
    connection = connections["default"]
    connection.close()
    connection.settings_dict["NAME"] = name  # the entry of the settings itself, so new connections take it, too


def _migrate_default(target: Path) -> None:
    """Make the tables of the tests' settings in another database than the default connection's own."""
    connection = connections["default"]
    before = connection.settings_dict["NAME"]
    _use(str(target))
    try:
        call_command("migrate", verbosity=0, interactive=False, run_syncdb=True)
    finally:
        connection.close()
        _use(before)
