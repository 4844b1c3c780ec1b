"""Requests for one task: its state, answers to its questions, its result and its cancellation.

In the stateless era they belong to the extension, in the handshake era to 2025-11-25.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

from mcp_django.client import failures
from mcp_django.client.errors import CallError, TaskNotFound
from mcp_django.client.session.requests import RequestSender
from mcp_django.client.tasks.task_state import ClientTaskState, parse_task_state

MAX_TASK_INPUT_REQUESTS: Final = 256
"""Maximum number of questions of one task."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskRequests:
    """Sends the requests for one task."""

    _sender: RequestSender
    id: str

    @property
    def is_closed(self) -> bool:
        """Return True if the client was closed."""
        return self._sender.is_closed

    @property
    def is_handshake(self) -> bool:
        """Return True if the latest connection belongs to the handshake era."""
        return not self._sender.is_stateless

    async def get_state(self) -> ClientTaskState:
        """Return the current state. Raises TaskNotFound for an unknown or expired task."""
        return parse_task_state(await self._send("tasks/get"), self.id)

    async def send_responses(self, responses: dict[str, Any]) -> None:
        """Send responses to questions of the task, by their keys."""
        await self._send("tasks/update", {"inputResponses": responses})

    async def cancel(self) -> None:
        """Request the end of the task; do nothing if it has ended.

        Raises TaskNotFound for an unknown or expired task.
        """
        try:
            await self._send("tasks/cancel")
        except TaskNotFound:
            # In the handshake era the error is the same for a task that has ended.
            if not (await self.get_state()).is_terminal:
                raise

    async def load_result(self, *, is_finished: bool) -> dict[str, Any]:
        """Return the result of a task in the handshake era, in wire format.

        The request waits for the end of the task. Until then it carries the questions of the server. Raises CallError
        with the error of a failed task.
        """
        timeout = None if is_finished else math.inf
        return await self._sender.send("tasks/result", {"taskId": self.id}, timeout=timeout)

    async def _send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            return await self._sender.send(method, {"taskId": self.id, **(params or {})})
        except CallError as error:
            if type(error) is CallError and error.code == failures.INVALID_PARAMS:
                raise TaskNotFound(error.code, data=error.data) from None
            raise
