"""Tasks on the wire: in the shape of the extension, and in that of core tasks.

Both shapes are built from the same row.
"""

from datetime import UTC, datetime
from typing import Any

from mcp_django.contrib.tasks.models import Task, TaskOrigin, TaskStatus
from mcp_django.extensions.calls import jsonrpc

PROGRESS_METHOD = "notifications/progress"
RELATED_TASK_KEY = "io.modelcontextprotocol/related-task"
"""Key in `_meta` of messages that belong to a core task."""


def format_time(time: datetime) -> str:
    """Return a time in ISO 8601, in UTC."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def build_task(task: Task) -> dict[str, Any]:
    """Build the members that each answer about a task has, in the shape of the extension."""
    return {**_build_common(task), "ttlMs": task.ttl_ms, "pollIntervalMs": task.poll_ms}


def build_detailed_task(task: Task) -> dict[str, Any]:
    """Build the body of `tasks/get` and of `notifications/tasks` in the shape of the extension."""
    body = build_task(task)
    if task.status == TaskStatus.INPUT_REQUIRED:
        body["inputRequests"] = jsonrpc.loads(task.input_requests or "{}")
    elif task.status == TaskStatus.COMPLETED and task.result:
        body["result"] = jsonrpc.loads(task.result)
    elif task.status == TaskStatus.FAILED and task.error:
        body["error"] = jsonrpc.loads(task.error)
    return body


def build_core_task(task: Task) -> dict[str, Any]:
    """Build a task in the shape of the core tasks.

    A result that is an error makes it `failed` there.
    """
    body = _build_common(task)
    if task.status == TaskStatus.COMPLETED and task.is_error:
        body["status"] = TaskStatus.FAILED.value
    return {**body, "ttl": task.ttl_ms, "pollInterval": task.poll_ms}


def build_progress(task: Task, token: str | int) -> dict[str, Any]:
    """Build the params of a progress notification of a core task, for the token of its call."""
    params: dict[str, Any] = {"progressToken": token, "progress": task.progress, "_meta": build_related_meta(task.pk)}
    if task.total is not None:
        params["total"] = task.total
    if task.status_message:
        params["message"] = task.status_message
    return params


def build_related_meta(id: str) -> dict[str, Any]:
    """Build the `_meta` of a message that belongs to a core task."""
    return {RELATED_TASK_KEY: {"taskId": id}}


def _build_common(task: Task) -> dict[str, Any]:
    body: dict[str, Any] = {
        "taskId": task.pk,
        "status": str(task.status),
        "createdAt": format_time(task.created),
        "lastUpdatedAt": format_time(task.updated),
    }
    if task.status_message:
        body["statusMessage"] = task.status_message
    return body


def is_core(task: Task) -> bool:
    """Return True if the client of the task knows core tasks only."""
    return task.origin == TaskOrigin.CORE
