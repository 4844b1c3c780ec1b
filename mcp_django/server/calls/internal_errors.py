"""Unexpected exceptions: classification and logging.

The text of the exception stays in the log. The client receives the reference of the log record.
"""

import asyncio
import secrets
from typing import TYPE_CHECKING

from mcp_django.protocol.log_text import get_logger
from mcp_django.server.calls.outcome import CallRecord
from mcp_django.server.ports import Outcome

if TYPE_CHECKING:
    from mcp_django.server.server import Server

logger = get_logger("mcp_django.server")

USER_ATTRIBUTES = frozenset(
    {
        "get_all_permissions",
        "get_full_name",
        "get_username",
        "groups",
        "has_module_perms",
        "has_perm",
        "has_perms",
        "is_active",
        "is_authenticated",
        "is_staff",
        "is_superuser",
        "user_permissions",
        "username",
    }
)
"""Attributes of a user that permission hooks read."""
MISSING_USER_MESSAGE = (
    "No user is logged in, so ctx.user is None: check ctx.principal.has_perm, or set MCP['LOCAL_USER'] to the user "
    "that local callers act as"
)


def is_bug(problem: BaseException) -> bool:
    """Return True if the exception is a fault of the code that ran.

    `sys.exit()` and an unrequested cancellation are faults. Exceptions that end the process or close a coroutine are
    not.
    """
    if isinstance(problem, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    return not isinstance(problem, KeyboardInterrupt | GeneratorExit)


def is_missing_user(user: object, problem: BaseException) -> bool:
    """Return True if code has read an attribute of `user`, which is None."""
    return (
        user is None and isinstance(problem, AttributeError) and problem.obj is None and problem.name in USER_ATTRIBUTES
    )


def report_internal_error(
    server: "Server", subject: str, problem: BaseException, record: CallRecord | None = None
) -> str:
    """Log a bug under a new reference and return the text for the client.

    The bug is noted in the record of the call. Raises the exception itself with the option `raise_bugs`.
    """
    if server.options.raise_bugs:
        if record is not None:
            record.set_failure(Outcome.BUG)
        raise problem
    reference = secrets.token_hex(4)
    if record is not None:
        record.set_failure(Outcome.BUG, reference)
    logger.error("Reference %s: %s of server %r failed", reference, subject, server.alias, exc_info=problem)
    if server.options.expose_errors:
        return f"Internal error (reference {reference}): {type(problem).__name__}: {problem}"
    return f"Internal error (reference {reference})"
