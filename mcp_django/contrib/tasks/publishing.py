"""Publication of changes of tasks, to listeners and sessions on any worker."""

from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.rows import store, wire
from mcp_django.extensions import notify_extension_key, notify_session
from mcp_django.extensions.calls import get_logger

logger = get_logger("mcp_django.tasks")
STATUS_METHOD = "notifications/tasks/status"
"""Notification of a change of a core task."""
TASK_IDS_FIELD = "taskIds"
"""Member of the filter of `subscriptions/listen`."""


async def publish_change(id: str, *, has_progress: bool = False) -> None:
    """Publish a change of a task, if a client follows it.

    `has_progress` is True if its progress has grown. Failures are logged, because clients poll as well.
    """
    try:
        await store.run_on_rows(_publish, id, has_progress)
    except Exception:
        logger.warning("A change of a task was not published", exc_info=True)


def _publish(id: str, has_progress: bool) -> None:
    """Publish the row as it is now: several changes may become one notification."""
    task = Task.objects.filter(pk=id).first()
    if task is not None:
        publish_row(task, has_progress=has_progress)


def publish_row(task: Task, *, has_progress: bool = False) -> None:
    """Publish a change of a row that was just read. Blocking."""
    if wire.is_core(task):
        _notify_session(task, has_progress)
    elif task.is_followed:
        notify_extension_key(TASK_IDS_FIELD, task.pk, server=task.server)


def _notify_session(task: Task, has_progress: bool) -> None:
    """Notify the session that asked for a core task.

    A task without a session has no listener. The token of the call stays valid while the task lives.
    """
    if task.session is None:
        return
    notify_session(task.session, STATUS_METHOD, wire.build_core_task(task))
    token = task.get_context().get("progress_token")
    if has_progress and token is not None and not task.is_terminal:
        notify_session(task.session, wire.PROGRESS_METHOD, wire.build_progress(task, token))
