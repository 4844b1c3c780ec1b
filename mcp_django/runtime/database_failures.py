"""Failures of the database that outlast one statement: it is unavailable, or its tables are missing.

They are neither bugs nor errors of the client. The client may repeat its request, as after any overload.
"""

from typing import Any

from django.db import Error, InterfaceError, InternalError, OperationalError, ProgrammingError

from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.threads.sql_cancellation import CallEndedError
from mcp_django.server.ports import Overloaded

logger = get_logger("mcp_django.server")

RETRY_AFTER_SECONDS = 5.0
READ_ONLY_SQLSTATE = "25006"
"""PostgreSQL: a statement wrote in a read-only transaction. psycopg reports it as an internal error."""
SCHEMA_ERROR_CODES = frozenset({"42P01", "42703", 1146, 1054})
"""Codes for a missing table or column, of PostgreSQL and of MySQL."""
SCHEMA_ERROR_TEXTS = ("no such table", "no such column", "has no column named")
"""Texts of SQLite for a missing table or column, which have no code of their own."""


class DatabaseUnavailable(Overloaded):
    """The database does not serve the request: it is unreachable, full, locked or read-only."""

    log_text = "Database unavailable"

    def __init__(self) -> None:
        super().__init__("The database is unavailable; try again later", retry_after=RETRY_AFTER_SECONDS)


class DatabaseNotMigrated(Overloaded):
    """The database lacks tables or columns of the installed release."""

    log_text = "Database not migrated; run 'manage.py migrate'"

    def __init__(self) -> None:
        super().__init__(
            "The database is not migrated; the operator must run 'manage.py migrate'", retry_after=RETRY_AFTER_SECONDS
        )


def find_database_failure(problem: BaseException) -> DatabaseUnavailable | DatabaseNotMigrated | None:
    """Return the failure that an exception shows; None for a bug, and for a statement of an ended call."""
    if not isinstance(problem, Error) or isinstance(problem, CallEndedError):
        return None
    codes = _get_codes(problem)
    if isinstance(problem, OperationalError | ProgrammingError) and (
        not codes.isdisjoint(SCHEMA_ERROR_CODES) or any(text in str(problem) for text in SCHEMA_ERROR_TEXTS)
    ):
        return DatabaseNotMigrated()
    if isinstance(problem, OperationalError | InterfaceError):
        return DatabaseUnavailable()
    if isinstance(problem, InternalError) and READ_ONLY_SQLSTATE in codes:
        return DatabaseUnavailable()
    return None


def report_database_failure(subject: str, problem: BaseException) -> Overloaded | None:
    """Log a failure of the database and return it; None if the exception shows no such failure."""
    failure = find_database_failure(problem)
    if failure is not None:
        log_failure(failure, subject, problem)
    return failure


def report_database_error(subject: str, error: Error) -> Overloaded:
    """Log any error of the database, raised by the package's own statements, and return its failure."""
    failure = find_database_failure(error) or DatabaseUnavailable()
    log_failure(failure, subject, error)
    return failure


def log_failure(
    failure: DatabaseUnavailable | DatabaseNotMigrated, subject: str, problem: BaseException | None
) -> None:
    """Log a failure of the database, with the exception that shows it."""
    logger.error("%s: %s failed", failure.log_text, subject, exc_info=problem)


def _get_codes(problem: Error) -> set[Any]:
    """Return the codes that the database driver has set."""
    cause: Any = problem.__cause__
    codes = (getattr(cause, "sqlstate", None), getattr(cause, "pgcode", None), *problem.args[:1])
    return {code for code in codes if isinstance(code, str | int)}
