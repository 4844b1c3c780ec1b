"""`tasks/result` of core tasks: the end of a task, and its questions on the same stream."""

import asyncio
from typing import Any

from mcp_django.contrib.tasks.core_questions import CoreQuestions, FindTask, RecordAnswers
from mcp_django.contrib.tasks.models import Task, TaskStatus
from mcp_django.contrib.tasks.operations import CHECK_SECONDS, read_result
from mcp_django.contrib.tasks.rows import wire
from mcp_django.extensions import Call, Overloaded

BUSY_MESSAGE = (
    "The task has not ended, and too many requests wait already (WSGI_WAITS). Poll tasks/get, and ask for the result "
    "once the task has ended"
)


class CoreTaskResult:
    """A `tasks/result` request. `find` reads the caller's row; `record` stores answers."""

    def __init__(self, call: Call, id: str, find: FindTask, record: RecordAnswers) -> None:
        self._call = call
        self._find = find
        self._questions: CoreQuestions | None = None
        if call.session is not None and call.outbox.interactive:
            self._questions = CoreQuestions(call, call.session, id, call.outbox, record)

    async def wait(self) -> dict[str, Any]:
        """Return the result of the call when the task has ended. Raises its error, and Overloaded at a limit."""
        task = await self._find()
        if not task.is_terminal:
            with self._call.claim_wait() as may_wait:
                if not may_wait:
                    raise Overloaded(BUSY_MESSAGE, status=429, retry_after=task.poll_ms / 1000)
                task = await self._wait_for_end()
        return _build_body(task)

    async def _wait_for_end(self) -> Task:
        pause, max_pause = CHECK_SECONDS
        try:
            while not (task := await self._find()).is_terminal:
                if task.status == TaskStatus.INPUT_REQUIRED and self._questions is not None:
                    await self._questions.send()
                    await self._questions.extend_claims()
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, max_pause)
        finally:
            if self._questions is not None:
                self._questions.cancel()
        return task


def _build_body(task: Task) -> dict[str, Any]:
    body = read_result(task)
    body["_meta"] = {**body.get("_meta", {}), **wire.build_related_meta(task.pk)}
    return body
