"""Calls whose tool runs elsewhere: the row comes first, and the call waits for it during the grace.

The client learns the id only if the call becomes a task. The call itself asks a question within the grace, as any call
of the stateless era: the sealed state names the row, and the answers of the next round go to it. The tool runs in one
place from its first line to its end, so nothing runs twice.
"""

import asyncio
from typing import Any

from mcp_django.contrib.tasks.models import Task, TaskStatus
from mcp_django.contrib.tasks.operations import (
    cancel_task,
    find_task,
    read_result,
    record_answers,
    wait_while_working,
)
from mcp_django.contrib.tasks.rows import store
from mcp_django.extensions import Call, InvalidParams
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.conversations import INPUT_REQUIRED, InputRequired, ReplayConversation
from mcp_django.extensions.event_loop import run_in_background

TASK_KEY = "task"
"""Member of the state that names the row of a call."""


class WaitingCall:
    """A call whose task has a row already. Its client does not know the id yet."""

    def __init__(self, call: Call, conversation: ReplayConversation, grace: float) -> None:
        self._call = call
        self._conversation = conversation
        self._grace = grace

    async def wait(self, task: Task) -> Task | dict[str, Any]:
        """Return the body of the result or of a round, or the row if the task still works after the grace.

        Raises the errors of the tool.
        """
        if self._grace <= 0:
            return task
        return await self._wait(task.pk)

    async def resume(self, id: str) -> Task | dict[str, Any]:
        """Record the answers of this round, and wait again.

        Raises InvalidParams for a task that has expired, and the errors of the tool.
        """
        try:
            task = await find_task(self._call, id)
        except InvalidParams:
            raise self._call.server.ports.state_sealer.build_error() from None
        open_keys = jsonrpc.loads(task.input_requests or "{}").keys()
        answers = self._conversation.get_state()["answers"]
        given = {key: response for key, (_, response) in answers.items() if key in open_keys}
        if given:
            # The task begins for its client now, so its lifetime does as well.
            await store.run_on_rows(store.restart_lifetime, id, task.ttl_ms / 1000)
            await record_answers(id, given)
        return await self._wait(id)

    async def _wait(self, id: str) -> Task | dict[str, Any]:
        try:
            task = await wait_while_working(self._call, id, self._grace)
        except asyncio.CancelledError:
            run_in_background(_cancel(id))  # its client went away, and cannot name the task
            raise
        if task.is_terminal:
            return read_result(task)
        return await self._build_round(task) if task.status == TaskStatus.INPUT_REQUIRED else task

    async def _build_round(self, task: Task) -> InputRequired:
        """Build a round with the open questions. Without answers the row lives as long as the state."""
        requests = jsonrpc.loads(task.input_requests or "{}")
        state = {TASK_KEY: task.pk, "asked": dict.fromkeys(requests, "")}
        sealed = self._conversation.seal_state(state, self._conversation.binding)
        ttl = self._call.server.options.conversation_limits.state_ttl
        await store.run_on_rows(store.restart_lifetime, task.pk, ttl)
        return InputRequired(inputRequests=requests, requestState=sealed, resultType=INPUT_REQUIRED)


async def _cancel(id: str) -> None:
    await cancel_task(id)
