"""System checks of databases under concurrent calls, with `check --deploy` only."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.core.checks import CheckMessage, Warning

from mcp_django import conf
from mcp_django.checks.installation import register_check
from mcp_django.conf.project import databases, is_served_over_asgi
from mcp_django.wiring import LOG_THREADS

SQLITE_ENGINES = ("sqlite3", "spatialite")
WAL_PATTERN = re.compile(r"journal_mode\W+wal\b", re.IGNORECASE)
DEFAULT_POOL_SIZE = 4
"""Default size of a connection pool.

psycopg_pool.ConnectionPool has min_size=4, and max_size is the same.
"""


# Not `Tags.database`: such checks connect, and run only if `--database` names one.
@register_check(deploy=True, reads_settings=False)
def check_databases() -> Iterator[CheckMessage]:
    """Check that concurrent calls do not fail on locks or run out of connections.

    Read from DATABASES, without connecting.
    """
    for alias, entry in databases().items():
        options = entry.get("OPTIONS")
        options = options if isinstance(options, Mapping) else {}
        if str(entry.get("ENGINE", "")).endswith(SQLITE_ENGINES):
            yield from _check_sqlite(alias, entry, options)
        else:
            yield from _check_persistent_connections(alias, entry)
            yield from _check_pool(alias, options)


def _check_sqlite(alias: str, entry: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Check the options of a SQLite database, without opening its file.

    Closing the file would release the locks that SQLite holds on it in this process (sqlite.org/howtocorrupt.html,
    section 2.2).
    """
    if _is_temporary(entry):
        return

    missing = []
    if str(options.get("transaction_mode")).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        missing.append('"transaction_mode": "IMMEDIATE"')
    if not WAL_PATTERN.search(str(options.get("init_command", ""))):
        missing.append('"init_command": "PRAGMA journal_mode=WAL"')
    if not missing:
        return

    yield Warning(
        f'DATABASES["{alias}"] is SQLite without {" and without ".join(missing)} in its OPTIONS, so calls that '
        'write at the same time fail with "database is locked".',
        hint=(
            'Set OPTIONS = {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL", "timeout": '
            "20}. A file that was switched to WAL by hand stays so, which this check cannot detect; silence it then."
        ),
        id="mcp_django.W004",
    )


def _is_temporary(entry: Mapping[str, Any]) -> bool:
    """Return True if the database is in memory, or that of a test run."""
    name, test = entry.get("NAME"), entry.get("TEST")
    if isinstance(test, Mapping) and test.get("NAME") is not None and str(test["NAME"]) == str(name):
        return True
    return not isinstance(name, Path) and (name == ":memory:" or "mode=memory" in str(name))


def _check_persistent_connections(alias: str, entry: Mapping[str, Any]) -> Iterator[CheckMessage]:
    if entry.get("CONN_MAX_AGE", 0) == 0 or not is_served_over_asgi():
        return
    yield Warning(
        f'DATABASES["{alias}"]["CONN_MAX_AGE"] is not 0 and the project is served over ASGI. There each request of a '
        "Django view has its own thread and leaves its connection open, until the database has no more.",
        hint=(
            'Set it to 0; for PostgreSQL use OPTIONS = {"pool": {"max_size": 20}}. If all database code runs '
            "in mcp_django.asgi.mount, which reuses a few threads, the setting is harmless; silence this check then."
        ),
        id="mcp_django.W005",
    )


def _check_pool(alias: str, options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    pool = options.get("pool")
    if not pool or not conf.is_usable():
        return

    given = pool if isinstance(pool, Mapping) else {}
    max_connections = given.get("max_size") or given.get("min_size", DEFAULT_POOL_SIZE)
    threads = conf.get_settings().limits.threads
    if not isinstance(max_connections, int) or max_connections >= threads + LOG_THREADS:
        return

    yield Warning(
        f'DATABASES["{alias}"]["OPTIONS"]["pool"] has at most {max_connections} connections, but '
        'MCP["LIMITS"]["THREADS"] lets '
        f"{threads} calls of a process use the database at once, plus {LOG_THREADS} for the event log. Under load they "
        "wait for a connection, and then fail.",
        hint=f'Set "pool": {{"max_size": {threads + 4}}}, or a smaller THREADS.',
        id="mcp_django.W006",
    )
