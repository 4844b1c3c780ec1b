"""Handle of a task on another server, for callers that do not wait in the call."""

from collections.abc import Callable
from typing import Any

import mcp_types as types

from mcp_django.client.session.requests import TimeLimit
from mcp_django.client.tasks.task_polling import TaskPoller
from mcp_django.client.tasks.task_state import ClientTaskState, TaskStatusName

ParseResult = Callable[[dict[str, Any]], types.CallToolResult]


class ClientTask:
    """A task on another server, created by `client.call_tool_task` or `client.get_task`.

    A server may answer a call directly. Then `id` is None, and the result is available at once.

    Methods that send requests raise ClientError. A task that is unknown to the server, or has expired, is a
    TaskNotFound.
    """

    def __init__(
        self,
        poller: TaskPoller | None,
        limit_time: TimeLimit,
        parse: ParseResult,
        *,
        direct_result: types.CallToolResult | None = None,
    ) -> None:
        self._poller = poller
        self._limit_time = limit_time
        self._parse = parse
        self._result = direct_result

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status or 'unknown'}>"

    @property
    def id(self) -> str | None:
        """The id of the task, which restores it in another process; None without a task."""
        return None if self._poller is None else self._poller.id

    @property
    def state(self) -> ClientTaskState | None:
        """The latest known state; None without a task, and before the first request."""
        return None if self._poller is None else self._poller.state

    @property
    def status(self) -> TaskStatusName | None:
        """The latest known status; None before the first request."""
        if self._poller is None:
            return "completed"
        return None if self._poller.state is None else self._poller.state.status

    async def get_status(self) -> TaskStatusName:
        """Request the current status. The status of an ended task is final and needs no request."""
        return "completed" if self._poller is None else (await self._poller.refresh()).status

    async def wait(self, timeout: float | None = None) -> TaskStatusName:
        """Wait until the task has ended, and return its status.

        Questions of the server are answered by the client's callbacks. Time spent in them does not count. The task
        continues when the wait is cancelled or times out.

        Raises:
            CallTimeout: The task has not ended within `timeout` seconds.
            ClientConnectionError: The server cannot be reached for a long time.
        """
        if self._poller is None:
            return "completed"
        async with self._limit_time(timeout):
            return (await self._poller.wait()).status

    async def get_result(self, timeout: float | None = None) -> types.CallToolResult:
        """Wait like `wait`, and return the result of the tool.

        Raises:
            TaskCancelled: The task was cancelled.
            CallError: The task failed: the error in place of a result.
        """
        if self._result is None:
            assert self._poller is not None, "there is a task or a result"
            async with self._limit_time(timeout):
                await self._poller.wait()
                self._result = self._parse(await self._poller.load_result())
        return self._result

    async def cancel(self) -> None:
        """Request the end of the task.

        The server decides: wait for the status. Does nothing if the task has ended.
        """
        if self._poller is not None:
            await self._poller.cancel()


class BlockingClientTask:
    """A `ClientTask` with blocking methods, created by a blocking client."""

    def __init__(self, task: ClientTask, run: Callable[[Any], Any]) -> None:
        self.task = task
        """The wrapped task."""
        self._run = run

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.task!r}>"

    @property
    def id(self) -> str | None:
        """The id of the task, which restores it in another process; None without a task."""
        return self.task.id

    @property
    def state(self) -> ClientTaskState | None:
        """The latest known state; None without a task, and before the first request."""
        return self.task.state

    @property
    def status(self) -> TaskStatusName | None:
        """The latest known status; None before the first request."""
        return self.task.status

    def get_status(self) -> TaskStatusName:
        """Request the current status, like `ClientTask.get_status`."""
        status: TaskStatusName = self._run(self.task.get_status())
        return status

    def wait(self, timeout: float | None = None) -> TaskStatusName:
        """Wait until the task has ended, like `ClientTask.wait`."""
        status: TaskStatusName = self._run(self.task.wait(timeout))
        return status

    def get_result(self, timeout: float | None = None) -> types.CallToolResult:
        """Wait for the result of the tool, like `ClientTask.get_result`."""
        result: types.CallToolResult = self._run(self.task.get_result(timeout))
        return result

    def cancel(self) -> None:
        """Request the end of the task, like `ClientTask.cancel`."""
        self._run(self.task.cancel())
