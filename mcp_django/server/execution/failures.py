"""Failures of handlers: the exception of a user's function becomes an error of its call."""

from typing import Final

from mcp_django.protocol.errors import MCPError, NotFound, ResourceNotFound, ToolError
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.internal_errors import (
    MISSING_USER_MESSAGE,
    is_bug,
    is_missing_user,
    report_internal_error,
)

RESOURCES_READ: Final = "resources/read"
TOOLS_CALL: Final = "tools/call"


def translate_failure(call: Call, subject: str, problem: BaseException) -> str | ToolError:
    """Translate an exception into a text for the client, or into a ToolError.

    Uses the server's translator; for a bug, the text is its reference. Raises an MCPError that the translator returns,
    and exceptions that are not failures of the code, such as cancellation. A failure of the server's storage is raised
    as Overloaded, because the call may be repeated, unless it is that of a tool, which may have had effects.
    """
    if not is_bug(problem):
        raise problem

    translated = call.server.ports.translate_exception(problem) if isinstance(problem, Exception) else None
    if isinstance(translated, MCPError):
        raise translated from None
    if isinstance(translated, NotFound) and call.method == RESOURCES_READ:
        raise ResourceNotFound(call.root.params["uri"]) from None
    if translated is None and is_missing_user(call.principal.user, problem):
        return ToolError(MISSING_USER_MESSAGE)
    if translated is None and _may_repeat(call):
        _check_storage(call, subject, problem)
    if translated is None:
        return report_internal_error(call.root.server, subject, problem, call.record)
    return translated if isinstance(translated, ToolError) else str(translated)


def _may_repeat(call: Call) -> bool:
    """Return True if a call that failed may be repeated, or is the attempt of a task that may run again."""
    attempt = call.record.attempt
    return call.method != TOOLS_CALL or (attempt is not None and attempt.may_repeat)


def _check_storage(call: Call, subject: str, problem: BaseException) -> None:
    """Raise Overloaded for a failure of the server's storage, unless the server has `raise_bugs`."""
    server = call.root.server
    if not server.options.raise_bugs:
        overload = server.ports.report_unavailability(f"{subject} of server {server.alias!r}", problem)
        if overload is not None:
            raise overload from problem
