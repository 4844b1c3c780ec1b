"""Calls in the grace: a plain result if the tool ends within it, a question of the call, or a task."""

import asyncio
from typing import Any

from mcp_django.contrib.tasks.attempts.attempt import Attempt, AttemptResult
from mcp_django.contrib.tasks.attempts.claims import claim_tasks
from mcp_django.contrib.tasks.attempts.heartbeats import HEARTBEATS
from mcp_django.contrib.tasks.backend import TaskBackend
from mcp_django.contrib.tasks.creation.task_rows import build_task_row, get_grace, get_ttl, start_task_of_call
from mcp_django.contrib.tasks.creation.waiting_call import TASK_KEY, WaitingCall
from mcp_django.contrib.tasks.models import Task, TaskOrigin
from mcp_django.contrib.tasks.options import TaskSettings, get_settings
from mcp_django.contrib.tasks.rows import leases, store
from mcp_django.extensions import Call, Overloaded, Tool
from mcp_django.extensions.calls import Server
from mcp_django.extensions.conversations import ReplayConversation
from mcp_django.extensions.event_loop import SHUTDOWN_MESSAGE, monotonic


class GraceCall:
    """A call that gets a plain result if its tool ends within the grace, and becomes a task otherwise.

    A question within the grace is asked by the call itself: the task is created in the last round. A backend that
    runs the tool in this process needs no row for that. With others the call waits for the row (`WaitingCall`).
    """

    def __init__(self, call: Call, tool: Tool, arguments: dict[str, Any]) -> None:
        self._call = call
        self._tool = tool
        self._arguments = arguments

    async def run(self, backend: TaskBackend) -> Task | dict[str, Any]:
        """Return the row of a new task, or the body of the result.

        Raises the errors of the tool, and Overloaded.
        """
        call, tool = self._call, self._tool
        conversation: ReplayConversation = call.era.start_conversation(call)
        if tool.single_use_state:
            await conversation.consume_state()
        rounds, settings, grace = conversation.get_state(), get_settings(), get_grace(tool)
        stored = WaitingCall(call, conversation, grace)
        if TASK_KEY in rounds:
            return await stored.resume(rounds[TASK_KEY])
        task = build_task_row(
            call, tool, self._arguments, origin=TaskOrigin.EXTENSION, rounds=rounds, ttl=get_ttl(tool)
        )

        attempt = Attempt(task, _get_server(call), call.principal, base=rounds)
        attempt.binding = conversation.binding
        execution = backend.begin(attempt) if grace > 0 else None
        if execution is None:
            await start_task_of_call(backend, task)
            return await stored.wait(task)

        try:
            with call.claim_wait() as may_wait:
                await asyncio.wait([execution], timeout=grace if may_wait else 0)
            if execution.done():
                return _answer_call(attempt, execution)
            await self._store(attempt, settings)
        except BaseException:
            execution.cancel()
            if attempt.lease is not None:
                HEARTBEATS.release(attempt.lease)
            raise
        backend.supervise(attempt, execution)
        return task

    async def _store(self, attempt: Attempt, settings: TaskSettings) -> None:
        """Insert the row of an attempt that is running already."""
        task = attempt.task
        task.lease_sent = monotonic()
        task.worker = leases.create_worker_name()
        task.attempts = 1
        steps = dict(attempt.unsaved_steps)

        def create() -> list[Task]:
            store.create(task, steps, settings)
            return [task]

        ((_, attempt.lease),) = await claim_tasks(create, lambda: store.cancel(task.pk))
        attempt.is_stored = True
        for key, value in attempt.unsaved_steps.items():
            if key not in steps:  # it ended while the row was inserted
                await store.run_on_rows(store.record_step, task.pk, task.worker, key, value)


def _get_server(call: Call) -> Server:
    server = call.server
    assert isinstance(server, Server)
    return server


def _answer_call(attempt: Attempt, execution: "asyncio.Task[AttemptResult]") -> dict[str, Any]:
    """Return the result of a call that ended within the grace. Raises its error."""
    if execution.cancelled():
        raise Overloaded(SHUTDOWN_MESSAGE)
    ended = execution.result()
    if ended.problem is not None:
        raise ended.problem
    if ended.result is not None:
        return ended.result
    assert attempt.conversation is not None  # only its questions end an attempt without a result
    return attempt.conversation.build_round()
