"""Operations of a caller on its tasks, shared by the methods and the tools."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from mcp_django.contrib.tasks.backend import get_backend
from mcp_django.contrib.tasks.models import Task, TaskStatus
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.publishing import publish_change
from mcp_django.contrib.tasks.rows import database, leases, store
from mcp_django.contrib.tasks.rows.database import AVAILABILITY
from mcp_django.contrib.tasks.upkeep import enqueue_task, start_maintenance, stop_cancelled_task
from mcp_django.extensions import Call, InternalError, InvalidParams, MethodNotFound, MissingClientCapability
from mcp_django.extensions.callers import get_owner
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.errors import MCPError
from mcp_django.extensions.event_loop import monotonic

CHECK_SECONDS = 0.1, 1.0
"""Seconds between two reads of a row that a request waits for: initial and maximum value."""
HTTP_STATUSES = {kind.code: kind.http_status for kind in (InvalidParams, MethodNotFound, MissingClientCapability)}
"""HTTP statuses of stored errors in the stateless era, by their codes."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")


def is_task_id(text: str) -> bool:
    """Return True if a text has the form of an id."""
    return _ID.fullmatch(text) is not None


async def find_task(call: Call, id: str) -> Task:
    """Return the caller's task.

    Raises InvalidParams for an id that is unknown, expired, or of another caller.
    """
    start_maintenance()
    task = None
    if is_task_id(id):
        task = await store.run_on_rows(store.find, id, get_owner(call.root).digest)
    if task is None:
        raise InvalidParams("Unknown task")
    if task.is_lost(database.now()) and AVAILABILITY.has_lasted(get_settings().lease):
        task = await _end_lost(task)
    return task


async def _end_lost(task: Task) -> Task:
    """End the attempt of a lost worker at once, so that no client waits for it."""
    ended = await store.run_on_rows(leases.end_expired_attempt, task)
    if ended is None:
        return await store.run_on_rows(Task.objects.get, pk=task.pk)
    if not ended.is_terminal:
        await enqueue_task(get_backend(), ended)
    await publish_change(task.pk)
    return ended


async def record_answers(id: str, responses: Mapping[str, Any]) -> None:
    """Record answers, and run the task again when no question is open any more."""
    waiting = await store.run_on_rows(store.answer, id, responses)
    if waiting is not None:
        await enqueue_task(get_backend(), waiting)
    await publish_change(id)


async def cancel_task(id: str) -> Task | None:
    """Cancel a task and stop its tool; return its row, or None if it had ended."""
    cancelled = await store.run_on_rows(store.cancel, id)
    if cancelled is not None:
        await stop_cancelled_task(get_backend(), cancelled)
    return cancelled


async def wait_while_working(call: Call, id: str, seconds: float) -> Task:
    """Return the caller's task as soon as it has ended or needs input, or after some seconds.

    Returns it at once if the call must not wait. Raises InvalidParams.
    """
    with call.claim_wait() as may_wait:
        end, (pause, max_pause) = monotonic() + (seconds if may_wait else 0), CHECK_SECONDS
        while (task := await find_task(call, id)).status == TaskStatus.WORKING and (rest := end - monotonic()) > 0:
            await asyncio.sleep(min(pause, rest))
            pause = min(pause * 1.5, max_pause)
    return task


def read_result(task: Task) -> dict[str, Any]:
    """Return the stored result of the call of an ended task. Raises its error."""
    if task.status == TaskStatus.COMPLETED and task.result:
        return dict(jsonrpc.loads(task.result))
    if task.status == TaskStatus.CANCELLED or not task.error:
        raise InternalError("The task was cancelled, so its call has no result")
    error = jsonrpc.loads(task.error)
    problem = MCPError(error["message"], data=error.get("data"))
    problem.code = error["code"]
    problem.http_status = HTTP_STATUSES.get(problem.code, problem.http_status)
    raise problem
