"""Databases for servers in processes of their own: migrated once, and given to each server as a copy."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.support.databases import postgres_template, sqlite_template, template_key
from tests.support.services import POSTGRES_URL, postgres_database

ROOT = Path(__file__).resolve().parents[2]
SITE = "tests.servers.site.settings"
"""The settings of the site that servers serve unless a test has one of its own."""
Database = dict[str, Any]
"""An entry of DATABASES."""


def sqlite(file: Path) -> Database:
    """The entry of a SQLite file that is in WAL mode already.

    Without `init_command`: on a new connection, while others use the file, the statement that asks for WAL now and then
    stays unfinished, and then the connection commits nothing. Servers here open one for each call.
    """
    options = {"timeout": 20, "transaction_mode": "IMMEDIATE"}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": options}


@contextmanager
def new_sqlite(site: str = SITE) -> Iterator[Database]:
    """A file with the site's tables, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mcp-servers-") as directory:
        file = Path(directory) / "site.sqlite3"
        shutil.copy(_migrated_file(site), file)
        yield sqlite(file)


@contextmanager
def new_postgres(site: str = SITE) -> Iterator[Database]:
    """A database beside the one of `services.POSTGRES_URL`, with the site's tables, gone afterwards.

    Its connections are called as it is: `application_name` in `pg_stat_activity`.
    """
    url = POSTGRES_URL
    name = f"mcp_servers_{uuid.uuid4().hex[:12]}"
    entry = {**postgres_database(url), "NAME": name, "OPTIONS": {"application_name": name}}
    _on_postgres(f"CREATE DATABASE {name} TEMPLATE {_migrated_template(url, site)}")
    try:
        yield entry
    finally:
        _on_postgres(f"DROP DATABASE {name} WITH (FORCE)")


def activity(database: Database) -> list[tuple[str, str]]:
    """State and query of the connections that servers have to a PostgreSQL database."""
    statement = "SELECT state, query FROM pg_stat_activity WHERE application_name = %s AND datname = application_name"
    return [(str(state), str(query)) for state, query in _on_postgres(statement, [database["NAME"]])]


def migrate(database: Database, site: str = SITE) -> None:
    """Make the site's tables."""
    run = subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--verbosity=0"],
        cwd=ROOT,
        env=environment(database, site),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def environment(database: Database, site: str = SITE) -> dict[str, str]:
    """The environment of a process that works on the site."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": site,
        "SITE_DATABASE": json.dumps(database),
    }


def _migrated_file(site: str) -> Path:
    """Return a migrated file to copy from."""
    return sqlite_template(template_key(site), lambda draft: migrate(sqlite(draft), site))


def _migrated_template(url: str, site: str) -> str:
    """Return the name of a migrated database to copy from."""
    return postgres_template(
        template_key(site), url, lambda draft: migrate({**postgres_database(url), "NAME": draft}, site)
    )


def count(database: Database, table: str, condition: str) -> int:
    """Count rows of a PostgreSQL database."""
    ((number,),) = _on_postgres(f"SELECT count(*) FROM {table} WHERE {condition}", database=database["NAME"])
    return int(number)


def update(database: Database, statement: str) -> None:
    """Run a statement in a PostgreSQL database."""
    _on_postgres(statement, database=database["NAME"])


def execute(database: Database, statement: str) -> None:
    """Run a statement in a PostgreSQL database; connections to it are new ones from then on."""
    update(database, statement)
    _on_postgres(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
        [database["NAME"]],
    )


def _on_postgres(statement: str, values: Any = None, *, database: str = "") -> list[tuple[Any, ...]]:
    entry = postgres_database()
    where = {
        "host": entry["HOST"],
        "port": entry["PORT"] or None,
        "user": entry["USER"],
        "dbname": database or entry["NAME"],
    }
    if entry["PASSWORD"]:
        where["password"] = entry["PASSWORD"]
    with psycopg.connect(**where, autocommit=True) as connection:
        cursor = connection.execute(statement, values)
        return [] if cursor.description is None else cursor.fetchall()
