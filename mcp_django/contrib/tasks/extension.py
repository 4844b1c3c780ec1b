"""The extension: calls that become tasks, the methods of tasks in both eras, and their subscription."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.apps import apps
from django.core.checks import Error

from mcp_django.contrib.tasks.backend import get_backend
from mcp_django.contrib.tasks.core_questions import ask_on_session_stream
from mcp_django.contrib.tasks.core_results import CoreTaskResult
from mcp_django.contrib.tasks.creation.grace_call import GraceCall
from mcp_django.contrib.tasks.creation.task_rows import build_task_row, get_ttl, start_task_of_call
from mcp_django.contrib.tasks.models import Task, TaskOrigin, TaskStatus
from mcp_django.contrib.tasks.operations import cancel_task, find_task, is_task_id, record_answers
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.publishing import TASK_IDS_FIELD
from mcp_django.contrib.tasks.rows import store, wire
from mcp_django.contrib.tasks.task_tools import TaskTools, call_tool_for_text
from mcp_django.extensions import (
    Call,
    Era,
    Extension,
    ExtensionResult,
    InvalidParams,
    MethodNotFound,
    ProceedWithCall,
    Revision,
    Tool,
    create_cursor,
    get_call,
    method,
    read_cursor,
    subscription,
)
from mcp_django.extensions.callers import get_owner
from mcp_django.extensions.calls import Context
from mcp_django.extensions.primitives import Provider

IDENTIFIER = "io.modelcontextprotocol/tasks"
PAGE_ROWS = 100
_STATELESS = (Era.STATELESS,)
_HANDSHAKE = (Era.HANDSHAKE,)


class Tasks(Extension):
    """Tasks: an extension in the stateless era, core tasks in the handshake era.

    Both are served from the same rows. A task belongs to the caller that created it, with its client, server and URL.
    The methods wait, and `run_on_rows` commits each of their writes, so none of them inherits ATOMIC_REQUESTS.
    """

    identifier = IDENTIFIER
    result_types = frozenset({"task"})

    def supports_revision(self, revision: Revision) -> bool:
        return revision.core_tasks or (super().supports_revision(revision) and revision.era is Era.STATELESS)

    def is_declared(self, call: Call) -> bool:
        # Core tasks need no declaration: a client asks for each task.
        return call.revision.core_tasks or super().is_declared(call)

    def get_capabilities(self, revision: Revision) -> Mapping[str, Any]:
        if revision.core_tasks:
            return {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
        return super().get_capabilities(revision)

    def get_tool_fields(self, tool: Tool, revision: Revision) -> Mapping[str, Any]:
        if tool.task is None or not revision.core_tasks:
            return {}
        return {"execution": {"taskSupport": "required" if tool.task.required else "optional"}}

    def get_providers(self) -> Sequence[Provider]:
        return (TaskTools(),) if get_settings().tools else ()

    def intercepts(self, tool: Tool) -> bool:
        return tool.task is not None

    async def call_tool(
        self, call: Call, tool: Tool, arguments: dict[str, Any], proceed: ProceedWithCall
    ) -> Mapping[str, Any]:
        """Answer with a task, or run the tool for a client without tasks."""
        if call.revision.era is Era.HANDSHAKE:
            return await self._call_in_session(call, tool, arguments, proceed)
        if not self.is_declared(call):
            if get_settings().tools:
                return await call_tool_for_text(call, tool, arguments)
            if tool.task is not None and tool.task.required:
                self.require_declaration(call)
            return await proceed(call)

        answer = await GraceCall(call, tool, arguments).run(get_backend())
        return ExtensionResult("task", **wire.build_task(answer)) if isinstance(answer, Task) else answer

    async def _call_in_session(
        self, call: Call, tool: Tool, arguments: dict[str, Any], proceed: ProceedWithCall
    ) -> Mapping[str, Any]:
        asked = call.params.get("task") if call.revision.core_tasks else None
        if asked is None and get_settings().tools:
            return await call_tool_for_text(call, tool, arguments)
        if asked is None:
            if tool.task is not None and tool.task.required:
                raise MethodNotFound(f"The tool {tool.name} runs as a task only; send params.task")
            return await proceed(call)
        ttl = _read_ttl(asked)
        task = build_task_row(
            call,
            tool,
            arguments,
            origin=TaskOrigin.CORE,
            rounds={},
            ttl=get_ttl(tool) if ttl is None else ttl / 1000,
        )
        await start_task_of_call(get_backend(), task)
        return ExtensionResult("task", task=wire.build_core_task(task))

    @method("tasks/get", name_param="taskId", atomic=False)
    async def get_task(self, ctx: Context, task_id: str) -> dict[str, Any]:
        """Return a task with its questions, result or error."""
        call = get_call(ctx)
        task = await find_task(call, task_id)
        if not call.revision.core_tasks:
            return wire.build_detailed_task(task)
        if task.status == TaskStatus.INPUT_REQUIRED:
            ask_on_session_stream(call.root, task, lambda: find_task(call, task_id), record_answers)
        return wire.build_core_task(task)

    @method("tasks/update", name_param="taskId", eras=_STATELESS, atomic=False)
    async def update_task(
        self, ctx: Context, task_id: str, input_responses: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        """Record answers to questions before the acknowledgement. Other keys are ignored."""
        await find_task(get_call(ctx), task_id)
        await record_answers(task_id, input_responses)
        return {}

    @method("tasks/cancel", name_param="taskId", atomic=False)
    async def cancel_task(self, ctx: Context, task_id: str) -> dict[str, Any]:
        """Cancel a task, and stop its tool."""
        await find_task(get_call(ctx), task_id)
        cancelled = await cancel_task(task_id)
        if not get_call(ctx).revision.core_tasks:
            return {}
        if cancelled is None:
            raise InvalidParams("The task has ended already and cannot be cancelled")
        return wire.build_core_task(cancelled)

    @method("tasks/result", eras=_HANDSHAKE, atomic=False)
    async def get_result(self, ctx: Context, task_id: str) -> dict[str, Any]:
        """Wait for the end of a core task, and return the result of its call. Questions travel on this stream."""
        call = get_call(ctx).root
        await find_task(call, task_id)
        return await CoreTaskResult(call, task_id, lambda: find_task(call, task_id), record_answers).wait()

    @method("tasks/list", eras=_HANDSHAKE, atomic=False)
    async def list_tasks(self, ctx: Context) -> dict[str, Any]:
        """Return a page of the caller's tasks. Callers that the server cannot distinguish have no list."""
        call = get_call(ctx).root
        owner = get_owner(call)
        if not owner.is_distinct:
            return {"tasks": []}
        last = read_cursor(call, "tasks", owner.digest)
        rows = await store.run_on_rows(store.list_after, owner.digest, _read_position(last), PAGE_ROWS + 1)
        body: dict[str, Any] = {"tasks": [wire.build_core_task(task) for task in rows[:PAGE_ROWS]]}
        if len(rows) > PAGE_ROWS:
            end = rows[PAGE_ROWS - 1]
            body["nextCursor"] = create_cursor(call, "tasks", owner.digest, f"{end.created.isoformat()} {end.pk}")
        return body

    @subscription(TASK_IDS_FIELD, notification="notifications/tasks", atomic=False)
    async def read_task(self, ctx: Context, key: str) -> dict[str, Any] | None:
        """Return the task as `tasks/get` does, or None for a foreign or unknown id."""
        if not is_task_id(key):
            return None
        owner = get_owner(get_call(ctx).root)
        task = await store.run_on_rows(store.follow, key, owner.digest)
        return None if task is None else wire.build_detailed_task(task)

    def check(self) -> Iterable[Any]:
        """Yield errors: the app is missing, or the backend cannot be used."""
        if not apps.is_installed("mcp_django.contrib.tasks"):
            hint = 'Add "mcp_django.contrib.tasks" to INSTALLED_APPS, and run migrate.'
            yield Error(
                "The extension Tasks needs its app, whose tables hold the tasks.", hint=hint, id="mcp_tasks.E001"
            )
            return
        try:
            yield from get_backend().check()
        except Exception as problem:
            yield Error(f'MCP["TASKS"]["BACKEND"] cannot be used: {problem}', id="mcp_tasks.E002")
        if get_settings().ttl > get_settings().max_ttl:
            yield Error('MCP["TASKS"]["TTL"] is above MAX_TTL.', id="mcp_tasks.E003")


def _read_ttl(asked: Any) -> int | None:
    """Return the `ttl` in milliseconds that a client asks for. Raises InvalidParams."""
    ttl = asked.get("ttl") if type(asked) is dict else asked
    if type(asked) is not dict or not (ttl is None or (type(ttl) is int and ttl > 0)):
        raise InvalidParams("params.task must be an object, and its ttl a number of milliseconds above 0")
    return ttl


def _read_position(last: str | None) -> tuple[datetime, str] | None:
    if last is None:
        return None
    created, _, id = last.partition(" ")
    return datetime.fromisoformat(created), id
