"""Tasks of calls in the same process, for callers that wait for the result."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_django.protocol.errors import MCPError

Wire = dict[str, Any]
SendRequest = Callable[[str, Wire], Awaitable[Wire]]

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
TASK_RESULT = "task"
"""The `resultType` of a result that is a task."""
DEFAULT_POLL_SECONDS = 1.0


class InProcessTask:
    """A task that a call has created.

    `send` sends a request of the same caller, `respond` returns the response to a question, and `report` receives each
    new status message.
    """

    def __init__(
        self,
        id: str,
        send: SendRequest,
        respond: Callable[[Wire], Awaitable[Any]],
        report: Callable[[str], None],
    ) -> None:
        self._params = {"taskId": id}
        self._send = send
        self._respond = respond
        self._report = report
        self._answered: set[str] = set()
        self._message: str | None = None

    async def wait(self) -> Wire:
        """Return the result of the tool at the end of the task; a cancelled wait cancels the task.

        Raises MCPError with the error of a failed task.
        """
        try:
            while True:
                state = await self._send("tasks/get", self._params)
                self._report_message(state)
                match state["status"]:
                    case "completed":
                        result: Wire = state["result"]
                        return result
                    case "failed":
                        raise _build_error(state["error"])
                    case "cancelled":
                        raise MCPError("The task was cancelled")
                    case "input_required":
                        await self._answer_questions(state["inputRequests"])
                await asyncio.sleep(
                    state["pollIntervalMs"] / 1000 if "pollIntervalMs" in state else DEFAULT_POLL_SECONDS
                )
        except asyncio.CancelledError:
            await self._send("tasks/cancel", self._params)
            raise

    def _report_message(self, state: Mapping[str, Any]) -> None:
        message = state.get("statusMessage")
        if message and message != self._message:
            self._message = message
            self._report(message)

    async def _answer_questions(self, requests: Mapping[str, Wire]) -> None:
        responses = {
            key: await self._respond(request) for key, request in requests.items() if key not in self._answered
        }
        self._answered.update(responses)
        if responses:
            await self._send("tasks/update", {**self._params, "inputResponses": responses})


def _build_error(error: Mapping[str, Any]) -> MCPError:
    problem = MCPError(error["message"], data=error.get("data"))
    problem.code = error["code"]
    return problem
