"""The backend of Celery: attempts run in Celery's workers, prefork or threads."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery import current_app, shared_task
from celery.signals import worker_process_init
from django.core import checks

from mcp_django.contrib.tasks.backend import TaskBackend
from mcp_django.contrib.tasks.backends.loop_thread import run_attempt_from_thread, start_maintenance_in_thread
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.rows import store

TASK_NAME = "mcp_django.run_task"
FALLBACK_APP = "default"
"""Name of the app that Celery creates where the project has none."""


# A broker may deliver a message again: the claim of the row lets one attempt run. So a message is acknowledged after
# its attempt, and a message whose worker process died is delivered to another one
# (https://docs.celeryq.dev/en/stable/userguide/tasks.html, acks_late, reject_on_worker_lost).
@shared_task(  # type: ignore[untyped-decorator]
    name=TASK_NAME, ignore_result=True, acks_late=True, reject_on_worker_lost=True
)
def run_mcp_task(id: str) -> None:
    """Run an attempt of a task."""
    run_attempt_from_thread(id)


@worker_process_init.connect  # type: ignore[untyped-decorator]  # Celery has no types
def on_worker_process_init(**kwargs: Any) -> None:
    """Maintain the tasks in each process of a prefork pool. Threads do so after their first message."""
    start_maintenance_in_thread()


class CeleryBackend(TaskBackend):
    """Attempts as tasks of the project's Celery app.

    `queue` is the queue of all messages; None for the routes of the Celery app. `options` are further arguments of
    `apply_async`, such as a priority.
    """

    def __init__(self, *, queue: str | None = None, options: dict[str, Any] | None = None) -> None:
        self._options = {**(options or {}), **({} if queue is None else {"queue": queue})}

    async def enqueue(self, task: Task) -> None:
        """Send a message to Celery's broker."""
        await store.run_on_rows(self._send, task.pk)

    def _send(self, id: str) -> None:
        run_mcp_task.apply_async(args=[id], **self._options)

    def check(self) -> Iterable[Any]:
        """Yield a warning if messages would go to the default broker.

        They do if no Celery app of the project is imported.
        """
        # As `_send` does, on another thread: the current app of Celery is one for each thread.
        with ThreadPoolExecutor(1) as pool:
            if pool.submit(_has_project_app).result():
                return
        yield checks.Warning(
            "This process has no Celery app of the project: tasks would go to the default broker of Celery.",
            hint="Import the app in the package of the settings, and set DJANGO_SETTINGS_MODULE before it is created "
            "(Celery's guide for Django).",
            id="mcp_django.W067",
        )


def _has_project_app() -> bool:
    conf = current_app.conf
    return current_app.main != FALLBACK_APP or bool(conf.broker_write_url) or bool(conf.task_always_eager)
