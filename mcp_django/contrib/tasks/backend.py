"""The interface of backends, and the configured one.

State is in the rows in every case. A backend only has `runner.run_attempt(id)` run soon, in any process. Deliveries may
be late, repeated or lost: an attempt starts with a claim, which one worker wins, and `upkeep.maintain_tasks` enqueues
tasks again whose delivery or worker was lost.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.contrib.tasks.attempts.attempt import Attempt, AttemptResult
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings


class TaskBackend:
    """A place where attempts run. `MCP["TASKS"]["BACKEND_OPTIONS"]` are its keyword arguments."""

    delivers_to_workers = True
    """True if `enqueue` sends a message to other processes, so that commands may enqueue.

    Messages may be lost, so maintenance repeats those of tasks that wait for long.
    """

    async def enqueue(self, task: Task) -> None:
        """Deliver a waiting task to `runner.run_attempt(task.pk)`, in any process.

        Called after the row was committed, on the loop of a call or of a worker. Send blocking calls to a thread.
        A failure is logged, and the task is enqueued again later.
        """
        raise NotImplementedError

    def begin(self, attempt: Attempt) -> "asyncio.Task[AttemptResult] | None":
        """Start the first attempt of a call that may still get a plain result.

        None means that this is impossible or that all places are taken: the task gets its row at once, and the call
        waits for the row during the grace.
        """
        return None

    def supervise(self, attempt: Attempt, execution: "asyncio.Task[AttemptResult]") -> None:
        """Take care of an attempt that `begin` started, because its call has become a task."""
        raise NotImplementedError

    async def cancel(self, task: Task) -> None:
        """Stop a running or waiting attempt early; optional.

        The row is cancelled already, and each process that runs an attempt has been notified.
        """

    def check(self) -> Iterable[Any]:
        """Yield messages of Django's system checks about the backend's settings."""
        return ()


def get_backend() -> TaskBackend:
    """Return the configured backend of this process. Raises ImproperlyConfigured, ImportError."""
    return _create_backend()


@conf.cached
def _create_backend() -> TaskBackend:
    settings = get_settings()
    kind: Any = import_string(settings.backend)
    backend = kind(**{name.lower(): value for name, value in settings.backend_options.items()})
    if not isinstance(backend, TaskBackend):
        raise ImproperlyConfigured(f'MCP["TASKS"]["BACKEND"]: {settings.backend} is not a TaskBackend')
    return backend
