"""Calls of tools, whose result may be a task, and the list of tools that they are checked against."""

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import mcp_types as types
from mcp_types.methods import validate_server_result

from mcp_django.client import failures
from mcp_django.client.errors import CallError, ClientError, InvalidAnswer, ToolNotFound
from mcp_django.client.session.connection_manager import ConnectionManager
from mcp_django.client.session.handlers import ProgressHandler
from mcp_django.client.session.requests import RequestSender
from mcp_django.client.session.validation import OutputValidator
from mcp_django.client.tasks.task_handle import ClientTask
from mcp_django.client.tasks.task_polling import AnswerRequests, TaskPoller
from mcp_django.client.tasks.task_requests import TaskRequests
from mcp_django.client.tasks.task_state import (
    MAX_TASK_ID_CHARACTERS,
    ClientTaskState,
    is_task_result,
    parse_created_task,
)
from mcp_django.schema import to_json

METHOD: Final = "tools/call"


class ToolCaller:
    """Calls the tools of one server."""

    def __init__(self, sender: RequestSender, manager: ConnectionManager, output_validator: OutputValidator) -> None:
        self._sender = sender
        self._manager = manager
        self._output_validator = output_validator
        self._task_support: dict[str, str] = {}
        """`execution.taskSupport` of the listed tools of the handshake era."""

    async def list_tools(self, timeout: float | None = None) -> list[types.Tool]:
        """List all tools. Later results are validated against their output schemas."""
        tools = await self._sender.list_all("tools/list", "tools", types.ListToolsResult, timeout)
        self._output_validator.set_tools(tools)
        self._task_support = {
            tool.name: tool.execution.task_support or "forbidden" for tool in tools if tool.execution is not None
        }
        return tools

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        timeout: float | None,
        on_progress: ProgressHandler | None,
        meta: Mapping[str, Any] | None,
    ) -> types.CallToolResult:
        """Call a tool, and wait for the end of its task, if there is one. See `Client.call_tool`."""
        options = {"timeout": timeout, "on_progress": on_progress, "meta": meta}
        needs_task = self._supports_core_tasks and self._task_support.get(name) == "required"
        started = await self._start(name, arguments, {} if needs_task else None, options)
        if not isinstance(started, TaskPoller):
            return await self._parse_direct_result(name, started)

        try:
            async with self.limit_total_time(timeout):
                await started.wait()
                return self._parse_task_result(name, await started.load_result())
        except BaseException:
            await started.abandon()
            raise

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        ttl: float | None,
        timeout: float | None,
        on_progress: ProgressHandler | None,
        meta: Mapping[str, Any] | None,
    ) -> ClientTask:
        """Call a tool as a task, if possible. See `Client.call_tool_task`."""
        options = {"timeout": timeout, "on_progress": on_progress, "meta": meta}
        started = await self._start(name, arguments, await self._find_task_params(name, ttl), options)
        if isinstance(started, TaskPoller):
            return self._build_handle(name, started)
        result = await self._parse_direct_result(name, started)
        return ClientTask(None, self.limit_total_time, lambda _: result, direct_result=result)

    def restore_task(self, id: str, name: str | None = None) -> ClientTask:
        """Return the handle of a task that was created before. See `Client.get_task`."""
        if not 0 < len(id) <= MAX_TASK_ID_CHARACTERS:
            raise ValueError(f"A task id has 1 to {MAX_TASK_ID_CHARACTERS} characters")
        return self._build_handle(name, self.build_poller(id))

    def build_poller(
        self,
        id: str,
        *,
        state: ClientTaskState | None = None,
        answer: AnswerRequests | None = None,
        name: str | None = None,
        on_progress: ProgressHandler | None = None,
    ) -> TaskPoller:
        """Build the poller of a task; its questions are answered by `answer`, or the client's callbacks."""
        return TaskPoller(
            TaskRequests(self._sender, id),
            answer or self._sender.answer_input_requests,
            self._sender.create_progress_relay(METHOD, {"name": name}, on_progress),
            state,
        )

    async def _start(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        task_params: dict[str, Any] | None,
        options: Mapping[str, Any],
    ) -> dict[str, Any] | TaskPoller:
        """Send a call, and return its result in wire format, or the poller of its task."""
        params = {"name": name, "arguments": to_json(dict(arguments or {}))}
        try:
            raw = await self._sender.complete(METHOD, _add_task(params, task_params), **options)
        except CallError as error:
            # The error code is the same as for invalid arguments, so the tool list is checked.
            if error.code not in (failures.INVALID_PARAMS, failures.METHOD_NOT_FOUND):
                raise
            if await self._is_tool_missing(name):
                raise ToolNotFound(error.code, error.message, error.data) from None
            if task_params is not None or not self._must_be_task(name, error):
                raise
            raw = await self._sender.complete(METHOD, _add_task(params, {}), **options)

        if not is_task_result(raw):
            return raw
        state = parse_created_task(raw)
        return self.build_poller(state.id, state=state, name=name, on_progress=options["on_progress"])

    def _build_handle(self, name: str | None, poller: TaskPoller) -> ClientTask:
        return ClientTask(poller, self.limit_total_time, lambda raw: self._parse_task_result(name, raw))

    async def _parse_direct_result(self, name: str, raw: dict[str, Any]) -> types.CallToolResult:
        result = self._sender.parse_result(types.CallToolResult, raw)
        text = next((block.text for block in result.content if isinstance(block, types.TextContent)), "")
        if result.is_error and _reports_unknown_tool(text, name) and await self._is_tool_missing(name):
            raise ToolNotFound(message=text)
        self._output_validator.check(name, result)
        return result

    def _parse_task_result(self, name: str | None, raw: dict[str, Any]) -> types.CallToolResult:
        """Parse the result of a task, which the SDK has not validated."""
        assert self._manager.current is not None, "the result came from a connection"
        revision = self._manager.current.revision
        wire = {"resultType": "complete", **raw} if self._manager.current.is_stateless else raw
        try:
            validate_server_result(METHOD, revision.version, wire)
        except ValueError:
            raise InvalidAnswer("The server sent a task result that violates the protocol") from None
        result = self._sender.parse_result(types.CallToolResult, raw)
        if name is not None:
            self._output_validator.check(name, result)
        return result

    async def _find_task_params(self, name: str, ttl: float | None) -> dict[str, Any] | None:
        """Return the parameter `task` of the handshake era; None if the tool cannot be called as a task."""
        await self._manager.get_connection()
        if not self._supports_core_tasks:
            return None
        if name not in self._task_support:
            await self.list_tools()
        if self._task_support.get(name) not in ("optional", "required"):
            return None
        return {} if ttl is None else {"ttl": round(ttl * 1000)}

    @property
    def _supports_core_tasks(self) -> bool:
        """Return True if the server runs tools as tasks at the request of a client."""
        connection = self._manager.current
        if connection is None or not connection.revision.core_tasks:
            return False
        offered = getattr(connection.session.server_capabilities, "tasks", None)
        return bool(offered and offered.requests and offered.requests.tools and offered.requests.tools.call)

    def _must_be_task(self, name: str, error: CallError) -> bool:
        """Return True if the server refused a plain call because the tool requires a task."""
        is_refused = error.code == failures.METHOD_NOT_FOUND and self._supports_core_tasks
        return is_refused and self._task_support.get(name) == "required"

    async def _is_tool_missing(self, name: str) -> bool:
        try:
            return all(tool.name != name for tool in await self.list_tools())
        except ClientError:
            return False

    @asynccontextmanager
    async def limit_total_time(self, timeout: float | None) -> AsyncIterator[None]:
        """Apply a timeout to a whole wait; the client's default applies to single requests only."""
        async with self._sender.limit_time(math.inf if timeout is None else timeout):
            yield


def _add_task(params: dict[str, Any], task_params: dict[str, Any] | None) -> dict[str, Any]:
    return params if task_params is None else {**params, "task": task_params}


def _reports_unknown_tool(text: str, name: str) -> bool:
    """Return True if the text of a failed result reports an unknown tool.

    Some servers do not use an error response for this.
    """
    return name in text and ("unknown tool" in text.lower() or "not found" in text.lower())
