"""Settings in `MCP["TASKS"]`."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from mcp_django.conf import register_settings
from mcp_django.conf.readers import Count, Entries, Flag, Seconds, SecondsOrZero

IN_PROCESS = "mcp_django.contrib.tasks.backends.in_process.InProcessBackend"


def _parse_path(raw: Any) -> str:
    if not isinstance(raw, str) or "." not in raw:
        raise ValueError("must be the dotted path of a backend")
    return raw


def _parse_lease(raw: Any) -> float:
    if not isinstance(raw, int | float) or isinstance(raw, bool) or not 3 <= raw <= 3600:
        raise ValueError("must be a number of seconds from 3 to 3600")
    return float(raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """`MCP["TASKS"]`: backend, lifetimes and limits of tasks."""

    backend: Annotated[str, _parse_path] = IN_PROCESS
    """Dotted path of the `TaskBackend` that runs tasks.

    By default they run in the process that serves the call.
    """
    backend_options: Entries = field(default_factory=dict)
    """Keyword arguments of the backend."""
    concurrency: Count = 16
    """Maximum attempts that run at once in one process. Others wait."""
    grace: SecondsOrZero = 2.0
    """Seconds in which a call may finish with a plain result instead of a task."""
    poll: Seconds = 1.0
    """Seconds between two polls that the server suggests to clients."""
    ttl: Seconds = 3600.0
    """Seconds after which a task expires: it is cancelled, and its id is unknown."""
    max_ttl: Seconds = 86_400.0
    """Maximum seconds that a client or a tool may set."""
    retention: SecondsOrZero = 86_400.0
    """Seconds for which rows of expired tasks stay for the admin."""
    lease: Annotated[float, _parse_lease] = 30.0
    """Seconds after which a silent worker counts as lost."""
    unknown_tool_wait: SecondsOrZero = 600.0
    """Seconds for which a task waits for a process that knows its tool.

    Then it fails. During a deploy, processes with old code return the tasks of new tools.
    """
    tools: Flag = False
    """True to add the tools `task_status` and `task_cancel`, for clients without tasks.

    Their calls of tools with `task=` return a text with the id of a task if they are not finished within the grace.
    """
    tasks_per_owner: Count = 50
    """Maximum unfinished tasks of one caller on a server."""
    tasks_per_server: Count = 5000
    """Maximum unfinished tasks of a server."""
    argument_bytes: Count = 256 * 1024
    """Maximum bytes of the arguments of a task, as JSON."""
    result_bytes: Count = 4 * 1024 * 1024
    """Maximum bytes of the result or the error of a task, as JSON.

    `LIMITS["RESULT_BYTES"]` applies first: it turns a larger result into an error for the model. A tool whose
    `max_result` is larger fails the task above this limit. An error loses its data.
    """


get_settings = register_settings("TASKS", TaskSettings)
