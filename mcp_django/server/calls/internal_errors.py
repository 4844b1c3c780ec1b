"""Bugs: what counts as one, and what is said of it. Their text stays in the log, beside the reference that goes out."""

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from mcp_django.server.calls.outcome import Fate, Outcome

if TYPE_CHECKING:
    from mcp_django.server.server import Server

logger = logging.getLogger("mcp_django.server")


def is_bug(problem: BaseException) -> bool:
    """Is this the fault of the code that ran? `sys.exit()` is, and a cancellation that nobody asked for; what ends the
    process, or closes a coroutine, is not.
    """
    if isinstance(problem, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    return not isinstance(problem, KeyboardInterrupt | GeneratorExit)


def report(server: "Server", what: str, problem: BaseException, fate: Fate | None = None) -> str:
    """Log a bug under a fresh reference, and note it in the call's fate; the text that may go out. Raises the bug
    itself where the server is told to.
    """
    if server.options.raise_bugs:
        if fate is not None:
            fate.failed(Outcome.BUG)
        raise problem
    reference = secrets.token_hex(4)
    if fate is not None:
        fate.failed(Outcome.BUG, reference)
    logger.error("Reference %s: %s of server %r failed", reference, what, server.alias, exc_info=problem)
    if server.options.expose_errors:
        return f"Internal error (reference {reference}): {type(problem).__name__}: {problem}"
    return f"Internal error (reference {reference})"
