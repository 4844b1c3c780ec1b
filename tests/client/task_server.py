"""A server in memory that runs each call as a task, in the wire format of either era."""

from typing import Any

from mcp import MCPError

from mcp_django.client.options import TASKS_EXTENSION
from tests.client.script import EVERYTHING, Script

TEXT = [{"type": "text", "text": "done"}]
TIME = "2026-07-28T10:00:00Z"
LEGACY_CAPABILITIES = {**EVERYTHING, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
EXTENSION_CAPABILITIES = {**EVERYTHING, "extensions": {TASKS_EXTENSION: {}}}
FORM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}


class TaskServer:
    """A server whose task goes through `states`, one for each poll; the last one repeats."""

    def __init__(self, era: str, *states: dict[str, Any], support: str = "required", **members: Any) -> None:
        self.era, self.support, self.members = era, support, members
        self.states = list(states)
        self.responses: list[dict[str, Any]] = []
        self.ttl: int | None = None
        self.result: Any = {"content": TEXT}
        """The response to `tasks/result`: a result, an error or a function."""
        self.script = Script(
            era,
            EXTENSION_CAPABILITIES if era == "stateless" else LEGACY_CAPABILITIES,
            tools_list=self._list_tools,
            tools_call=self._call,
            tasks_get=self._get,
            tasks_update=self._update,
            tasks_cancel=self._cancel,
            tasks_result=self._get_result,
        )

    def count(self, method: str) -> int:
        """Count the received requests of a method."""
        return self.script.methods().count(method)

    def sent(self, method: str) -> dict[str, Any]:
        """Return the parameters of the latest request of a method."""
        return [params for received, params in self.script.received if received == method][-1]

    def task(self, **members: Any) -> dict[str, Any]:
        """Build the task in the wire format of the era."""
        spelled = {"stateless": ("ttlMs", "pollIntervalMs"), "handshake": ("ttl", "pollInterval")}[self.era]
        common = {"taskId": "t1", "status": "working", "createdAt": TIME, "lastUpdatedAt": TIME, spelled[0]: self.ttl}
        given = {spelled[1] if name == "poll" else name: value for name, value in {**self.members, **members}.items()}
        return {**common, **given}

    def _list_tools(self, params: dict[str, Any]) -> dict[str, Any]:
        tool: dict[str, Any] = {"name": "survey", "inputSchema": {"type": "object"}}
        if self.era == "handshake":
            tool["execution"] = {"taskSupport": self.support}
        return {"tools": [tool]}

    def _call(self, params: dict[str, Any]) -> Any:
        if self.era == "stateless":
            return {**self.task(), "resultType": "task"}
        if "task" in params:
            return {"task": self.task()}
        return MCPError(-32601, "survey requires a task") if self.support == "required" else {"content": TEXT}

    def _get(self, params: dict[str, Any]) -> Any:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return state if isinstance(state, Exception) else self.task(**state)

    def _update(self, params: dict[str, Any]) -> dict[str, Any]:
        self.responses.append(params["inputResponses"])
        return {}

    def _cancel(self, params: dict[str, Any]) -> Any:
        self.states = [{"status": "cancelled"}]
        return {} if self.era == "stateless" else self.task(status="cancelled")

    def _get_result(self, params: dict[str, Any]) -> Any:
        return self.result(params) if callable(self.result) else self.result


WORKING: dict[str, Any] = {}
COMPLETED: dict[str, Any] = {"status": "completed", "result": {"content": TEXT}}


def asks(**questions: dict[str, Any]) -> dict[str, Any]:
    """Build the state of a task that waits for answers."""
    return {"status": "input_required", "inputRequests": questions}
