"""A client of tasks in both eras, without a transport."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from mcp_django.auth.principal import DjangoPrincipal
from tests.server.client import PipelineClient

IDENTIFIER = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {IDENTIFIER: {}}}
TERMINAL = {"completed", "failed", "cancelled"}


def make_caller(name: str = "ada", client_id: str = "cli", user: Any = None, **options: Any) -> DjangoPrincipal:
    return DjangoPrincipal(issuer="tests", subject=name, client_id=client_id, user=user, **options)


@dataclass
class TaskClient(PipelineClient):
    """A client that declares the extension and follows tasks."""

    principal: DjangoPrincipal = field(default_factory=make_caller)
    capabilities: dict[str, Any] = field(default_factory=lambda: DECLARED)

    async def start(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The task that a call creates."""
        created = await self.call(tool, **arguments)
        assert created.get("resultType") == "task", created
        return created

    async def get(self, id: str) -> dict[str, Any]:
        return await self.request("tasks/get", {"taskId": id})

    async def update(self, id: str, **responses: Any) -> dict[str, Any]:
        return await self.request("tasks/update", {"taskId": id, "inputResponses": responses})

    async def cancel(self, id: str) -> dict[str, Any]:
        return await self.request("tasks/cancel", {"taskId": id})

    async def until(self, id: str, *statuses: str) -> dict[str, Any]:
        """The task once it has one of these statuses, or a terminal one."""
        for _ in range(500):
            task = await self.get(id)
            if task["status"] in (statuses or TERMINAL):
                return task
            await asyncio.sleep(0)
        raise AssertionError(f"the task is still {task['status']}")
