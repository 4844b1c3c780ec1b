"""`tasks/result` of core tasks: the end of a task, and its questions on the same stream."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from mcp_django.contrib.tasks.models import Task, TaskInput, TaskStatus
from mcp_django.contrib.tasks.rows import store, wire
from mcp_django.extensions import Call
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MCPError

logger = logging.getLogger("mcp_django.tasks")
CHECK_SECONDS = 0.1, 1.0
"""Seconds between two reads of the row: initial and maximum value."""
CANCEL_ANSWER: dict[str, Any] = {"action": "cancel"}
"""Answer to a question that the client refused with an error."""
RecordAnswers = Callable[[str, Mapping[str, Any]], Awaitable[None]]


class CoreTaskResult:
    """A `tasks/result` request. `find` reads the caller's row; `record` stores answers."""

    def __init__(self, call: Call, id: str, find: Callable[[], Awaitable[Task]], record: RecordAnswers) -> None:
        self._call = call
        self._id = id
        self._find = find
        self._record = record
        self._asking: dict[int, asyncio.Task[None]] = {}

    async def wait(self) -> dict[str, Any]:
        """Return the result of the call when the task has ended. Raises its error."""
        pause, max_pause = CHECK_SECONDS
        try:
            while not (task := await self._find()).is_terminal:
                if task.status == TaskStatus.INPUT_REQUIRED:
                    await self._ask_questions()
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, max_pause)
        finally:
            for asking in self._asking.values():
                asking.cancel()
        return self._build_body(task)

    def _build_body(self, task: Task) -> dict[str, Any]:
        if task.status == TaskStatus.COMPLETED and task.result:
            body: dict[str, Any] = jsonrpc.loads(task.result)
            body["_meta"] = {**body.get("_meta", {}), wire.RELATED_TASK_KEY: {"taskId": task.pk}}
            return body
        if task.status == TaskStatus.CANCELLED or not task.error:
            raise InternalError("The task was cancelled, so its call has no result")
        error = jsonrpc.loads(task.error)
        problem = MCPError(error["message"], data=error.get("data"))
        problem.code = error["code"]
        raise problem

    async def _ask_questions(self) -> None:
        """Ask the open questions that no other stream asks."""
        session = self._call.session
        if session is None or not self._call.outbox.interactive:
            return
        for row in await store.run_on_rows(
            _claim_questions, self._id, self._call.server.options.conversation_limits.wait
        ):
            if row.pk not in self._asking:
                self._asking[row.pk] = asyncio.ensure_future(self._ask(row))

    async def _ask(self, row: TaskInput) -> None:
        call, session = self._call, self._call.session
        assert session is not None  # checked by the caller
        request = jsonrpc.loads(row.request)
        params = {**request.get("params", {})}
        params["_meta"] = {**params.get("_meta", {}), wire.RELATED_TASK_KEY: {"taskId": self._id}}
        id, timeout = call.server.pending_requests.new_id(session), call.server.options.conversation_limits.wait
        try:
            async with call.server.pending_requests.accept_forwarded(session):
                reply = await session.send_request(call.outbox, id, request["method"], params, timeout=timeout)
        except BaseException as problem:
            await store.run_on_rows(_release_question, row.pk)
            if not isinstance(problem, TimeoutError):
                raise
            return
        await self._record(self._id, {row.key: CANCEL_ANSWER if reply.error is not None else reply.result})


def _claim_questions(id: str, seconds: float) -> list[TaskInput]:
    """Claim the open questions that nobody has asked within `seconds`."""
    now = timezone.now()
    free = Q(asked=None) | Q(asked__lt=now - timedelta(seconds=seconds))
    rows = list(TaskInput.objects.filter(free, task=id, closed=None).order_by("pk"))
    return [row for row in rows if TaskInput.objects.filter(free, pk=row.pk, closed=None).update(asked=now)]


def _release_question(pk: int) -> None:
    """Let another stream ask a question again."""
    TaskInput.objects.filter(pk=pk, closed=None).update(asked=None)
