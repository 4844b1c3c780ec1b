"""Readiness of the database: it answers, and the migrations of the package are applied.

The result is kept for a short time and queried by one task at a time, because a health check needs no credential.
"""

import asyncio
from enum import StrEnum

from django.apps import apps
from django.db import Error, connections, router
from django.db.migrations.executor import MigrationExecutor

from mcp_django.aio.clock import monotonic
from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import start_task
from mcp_django.runtime.database_failures import (
    DatabaseNotMigrated,
    DatabaseUnavailable,
    find_database_failure,
    log_failure,
)
from mcp_django.runtime.events.event_log import EventLog
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.ports import Executor

TRUST_SECONDS = 2.0
"""Seconds for which a result is used again."""
QUERY_TIMEOUT_SECONDS = 3.0
"""Seconds after which a database without an answer counts as unavailable."""
APP_PREFIX = "mcp_django"


class DatabaseStatus(StrEnum):
    """Status of the database; the value is the word that a health check reports."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    NOT_MIGRATED = "unmigrated"


class DatabaseReadiness:
    """Check of the package's database tables, for all event loops of a process."""

    def __init__(self, executor: Executor) -> None:
        """Create a check whose queries run through `executor`."""
        self._executor = executor
        self._checks = LoopLocal(_LoopCheck)
        self._is_migrated = False
        self._logged_status = DatabaseStatus.OK

    async def get_status(self) -> DatabaseStatus:
        """Return the status of the last `TRUST_SECONDS`; query it if there is none."""
        check = self._checks.get()
        if check.task is None or (check.task.done() and monotonic() >= check.fresh_until):
            check.task = start_task(self._query(check))
        await asyncio.wait({check.task}, timeout=QUERY_TIMEOUT_SECONDS)
        return check.task.result() if check.task.done() else DatabaseStatus.UNAVAILABLE

    async def _query(self, check: "_LoopCheck") -> DatabaseStatus:
        try:
            return await run_on_own_thread(self._executor, self._find_status)
        finally:
            check.fresh_until = monotonic() + TRUST_SECONDS

    def _find_status(self) -> DatabaseStatus:
        try:
            EventLog().head()
            if not self._is_migrated:
                self._is_migrated = not _has_unapplied_migrations()
            status, error = DatabaseStatus.OK if self._is_migrated else DatabaseStatus.NOT_MIGRATED, None
        except Error as problem:
            error = problem
            is_unmigrated = isinstance(find_database_failure(problem), DatabaseNotMigrated)
            status = DatabaseStatus.NOT_MIGRATED if is_unmigrated else DatabaseStatus.UNAVAILABLE

        # Load balancers ask every few seconds, so a status is logged once.
        if status not in (self._logged_status, DatabaseStatus.OK):
            failure = DatabaseNotMigrated() if status is DatabaseStatus.NOT_MIGRATED else DatabaseUnavailable()
            log_failure(failure, "the health check", error)
        self._logged_status = status
        return status


class _LoopCheck:
    """The current or last query of one event loop."""

    def __init__(self) -> None:
        self.task: asyncio.Task[DatabaseStatus] | None = None
        self.fresh_until = 0.0


def _has_unapplied_migrations() -> bool:
    """Return True if a migration of the package's apps is missing in the database of its models."""
    labels_by_alias: dict[str, set[str]] = {}
    for config in apps.get_app_configs():
        if config.name.partition(".")[0] == APP_PREFIX:
            for model in config.get_models():
                labels_by_alias.setdefault(router.db_for_write(model), set()).add(config.label)

    for alias, labels in labels_by_alias.items():
        executor = MigrationExecutor(connections[alias])
        targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] in labels]
        if executor.migration_plan(targets):
            return True
    return False
