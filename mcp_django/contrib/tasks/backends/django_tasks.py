"""The backend of Django's task framework: attempts run where `TASKS` runs its tasks.

The framework is part of Django since 6.0 (https://docs.djangoproject.com/en/6.0/topics/tasks/). The package
django-tasks has it for older releases.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import django
from django.core import checks

from mcp_django.contrib.tasks.backend import TaskBackend
from mcp_django.contrib.tasks.backends.loop_thread import run_attempt_from_thread
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.rows import store

framework: Any = import_module("django.tasks" if django.VERSION >= (6, 0) else "django_tasks")


@framework.task  # type: ignore[untyped-decorator]
def run_mcp_task(id: str) -> bool:
    """Run an attempt of a task; return False if the task does not wait."""
    return run_attempt_from_thread(id)


class DjangoTasksBackend(TaskBackend):
    """Attempts as tasks of Django's framework.

    `alias` names an entry of `TASKS`, `queue_name` one of its queues.
    """

    def __init__(self, *, alias: str = "default", queue_name: str = "default") -> None:
        self._alias = alias
        self._queue_name = queue_name

    async def enqueue(self, task: Task) -> None:
        """Enqueue an attempt in the framework."""
        await store.run_on_rows(self._send, task.pk)

    def _send(self, id: str) -> None:
        run_mcp_task.using(backend=self._alias, queue_name=self._queue_name).enqueue(id)

    def _get_framework_backend(self) -> Any:
        return framework.task_backends[self._alias]

    def check(self) -> Iterable[Any]:
        """Yield an error if `TASKS` has no entry of this alias, or the entry has no such queue."""
        try:
            queues = self._get_framework_backend().queues
        except Exception as problem:
            yield checks.Error(
                f"TASKS has no usable entry {self._alias!r}: {problem}",
                hint='Add the entry to TASKS, or change MCP["TASKS"]["BACKEND_OPTIONS"]["ALIAS"].',
                id="mcp_django.E062",
            )
            return
        if queues and self._queue_name not in queues:
            yield checks.Error(
                f'The queue {self._queue_name!r} is not in the QUEUES of TASKS["{self._alias}"].',
                hint='Add the queue, or change MCP["TASKS"]["BACKEND_OPTIONS"]["QUEUE_NAME"].',
                id="mcp_django.E062",
            )
