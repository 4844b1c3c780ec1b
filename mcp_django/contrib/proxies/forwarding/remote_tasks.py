"""Tasks that a remote server makes of forwarded calls, followed by the proxy to their end.

The id of a task stays within the proxy, and in the sealed state of a local call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

from mcp_django.client import Client
from mcp_django.client.session.handlers import ProgressHandler
from mcp_django.client.tasks.task_state import parse_created_task

Wire = dict[str, Any]


class TaskInputRequired(Exception):
    """Questions of a task that are asked in a later local round."""

    def __init__(self, requests: Wire) -> None:
        super().__init__("The task waits for responses")
        self.requests = requests


@dataclass(frozen=True, slots=True)
class RemoteTaskRecord:
    """Record of a task between two local rounds."""

    id: str
    questions: Mapping[str, Any] = field(default_factory=dict)
    """All questions of the task that were forwarded, by key."""


class RemoteTask:
    """A task of one forwarded call, over one connection."""

    def __init__(self, client: Client, answer: Wire, on_progress: ProgressHandler | None) -> None:
        """Read the task from the answer to a call. Raises InvalidAnswer."""
        state = parse_created_task(answer)
        self._client = client
        self._poller = client.tool_caller.build_poller(
            state.id, state=state, answer=_raise_requests, on_progress=on_progress
        )

    @classmethod
    def restore(cls, client: Client, record: RemoteTaskRecord, on_progress: ProgressHandler | None) -> Self:
        """Return the task of an earlier local round."""
        task = cls.__new__(cls)
        task._client = client
        task._poller = client.tool_caller.build_poller(record.id, answer=_raise_requests, on_progress=on_progress)
        task._poller.mark_answered(record.questions)
        return task

    async def follow(self, timeout: float | None) -> Wire:
        """Wait for the end of the task, or for its questions, and return the answer in place of the call's.

        Questions are returned like those of a call that requires input, with the member `taskId`. A task without a
        caller is cancelled.
        """
        try:
            async with self._client.tool_caller.limit_total_time(timeout):
                await self._poller.wait()
                return await self._poller.load_result()
        except TaskInputRequired as pending:
            return {"resultType": "input_required", "inputRequests": pending.requests, "taskId": self._poller.id}
        except BaseException:
            await self.abandon()
            raise

    async def continue_with(self, responses: Wire, timeout: float | None) -> Wire:
        """Send responses to the questions of the task, and follow it."""
        await self._poller.send_responses(responses)
        return await self.follow(timeout)

    async def abandon(self) -> None:
        """Cancel the task; ignore failures."""
        await self._poller.abandon()


async def _raise_requests(requests: Wire) -> NoReturn:
    raise TaskInputRequired(requests)
