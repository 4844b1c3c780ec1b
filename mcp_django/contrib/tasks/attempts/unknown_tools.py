"""Tasks of tools that this process does not know.

During a deploy, processes with old and with new code share the rows. A process that does not know the tool, the server
or the revision of a task returns it, because another process may know them. The task fails after a time.
"""

import logging

from mcp_django import conf
from mcp_django.contrib.tasks.attempts.ends import repeat_write, return_task
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import leases, store
from mcp_django.extensions.calls import REVISIONS, RateLimitedLogger, get_logger

logger = get_logger("mcp_django.tasks")
RETURN_SECONDS = 5.0
"""Seconds until a returned task is tried again."""
_warnings = RateLimitedLogger(logger)


def find_unknown_part(task: Task) -> str | None:
    """Return a text about the server or the revision of a task that is unknown here, or None.

    The tool is not looked for here, because a provider may have it: the call itself finds it or fails.
    """
    if task.server not in conf.servers():
        return f"Unknown server: {task.server}"
    if task.revision not in REVISIONS:
        return f"Unknown revision: {task.revision}"
    return None


async def return_unknown_task(task: Task, text: str) -> bool:
    """Return a claimed task to the waiting ones, for a process that knows its tool.

    Returns False if the task has been unknown for `UNKNOWN_TOOL_WAIT` seconds: it has to fail. `text` names the
    unknown part.
    """
    unknown = await repeat_write(lambda: store.run_on_rows(leases.record_unknown, task))
    if unknown.total_seconds() >= get_settings().unknown_tool_wait:
        return False
    _warnings.log(logging.WARNING, "A task waits for a process that knows its tool; here it is unknown: %s", text)
    await return_task(task, delay=RETURN_SECONDS)
    return True
