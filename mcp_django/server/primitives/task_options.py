"""Options of tools whose calls may become tasks: long jobs that outlive their request."""

import math
from dataclasses import dataclass

from mcp_django.schema import DeclarationError
from mcp_django.server.injection.handler import describe_source

DEFAULT_QUEUE = "default"
REQUIRED = "required"
"""Value of the option `task` for a tool that runs as a task only."""
MAX_QUEUE_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options of a tool with `task=`. They take effect on servers with an extension for tasks."""

    required: bool = False
    """True if the tool runs as a task only. Clients without tasks receive an error."""
    ttl: float | None = None
    """Seconds after which the task expires; None for the server's default."""
    grace: float | None = None
    """Seconds in which a call may finish with a plain result; None for the server's default.

    With 0 each call of a client with tasks becomes a task at once.
    """
    poll: float | None = None
    """Seconds between two polls that the server suggests; None for the server's default."""
    retry: int | None = None
    """Number of times to run the tool again after its worker was lost.

    None means 2 for tools that are annotated as idempotent or read-only, and 0 for the others.
    """
    queue: str = DEFAULT_QUEUE
    """Name of the queue, for workers that serve some queues only."""

    def check(self, declared: object) -> "TaskOptions":
        """Return the options if they are valid. Raises DeclarationError."""
        where = describe_source(declared)
        for name, value, minimum in (("ttl", self.ttl, 1.0), ("grace", self.grace, 0.0), ("poll", self.poll, 0.001)):
            if value is not None and not (_is_number(value) and minimum <= value < math.inf):
                raise DeclarationError(f"{where}: TaskOptions({name}={value!r}) must be at least {minimum:g} seconds")
        if self.retry is not None and (type(self.retry) is not int or self.retry < 0):
            raise DeclarationError(f"{where}: TaskOptions(retry={self.retry!r}) must be a whole number, 0 or more")
        queue: object = self.queue
        if not isinstance(queue, str) or not 0 < len(queue) <= MAX_QUEUE_CHARACTERS:
            raise DeclarationError(
                f"{where}: TaskOptions(queue={queue!r}) must have 1 to {MAX_QUEUE_CHARACTERS} characters"
            )
        return self


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse_task(declared: object, task: object) -> TaskOptions | None:
    """Convert the option `task` of a declaration. Raises DeclarationError."""
    if task is None or task is False:
        return None
    if task is True:
        return TaskOptions()
    if task == REQUIRED:
        return TaskOptions(required=True)
    if isinstance(task, TaskOptions):
        return task.check(declared)
    raise DeclarationError(
        f"{describe_source(declared)}: task={task!r} is invalid; use True, {REQUIRED!r} or TaskOptions(...)"
    )
