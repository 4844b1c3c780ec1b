"""Scenarios of one process: python -m tests.contrib.tasks.site.scenarios NAME [ARGUMENT ...]; prints the result."""

import asyncio
import json
import sys
import threading
from typing import Any

import django

django.setup()

from django.test import Client  # noqa: E402

from mcp_django import wiring  # noqa: E402
from mcp_django.contrib.tasks.backends.loop_thread import run_attempt_from_thread  # noqa: E402
from mcp_django.contrib.tasks.models import Task  # noqa: E402
from mcp_django.contrib.tasks.rows import leases  # noqa: E402
from mcp_django.contrib.tasks.worker import WorkerBackend  # noqa: E402
from mcp_django.types import TaskOptions  # noqa: E402
from tests.contrib.tasks.clients import DECLARED, TaskClient  # noqa: E402


def get_client() -> TaskClient:
    return TaskClient(wiring.get_server("default"))


def start(tool: str) -> str:
    """Create a task."""
    return str(asyncio.run(get_client().start(tool))["taskId"])


def cancel(id: str) -> str:
    """Cancel a task, as a process does that does not run it."""
    return str(asyncio.run(get_client().cancel(id)))


def create_in_a_request() -> str:
    """Create a task by HTTP on WSGI; return the number of rows that other connections see when it is enqueued."""
    seen: list[int] = []

    async def count(self: WorkerBackend, task: Task) -> None:
        thread = threading.Thread(target=lambda: seen.append(Task.objects.filter(pk=task.pk).count()))
        thread.start()
        thread.join()

    WorkerBackend.enqueue = count  # type: ignore[method-assign]
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": DECLARED,
    }
    params = {"name": "sleep_in_sql", "arguments": {}, "_meta": meta}
    reply = Client().post(
        "/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        content_type="application/json",
        headers={
            "Host": "127.0.0.1",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "sleep_in_sql",
        },
    )
    assert reply.json()["result"]["resultType"] == "task", reply.content
    return str(seen)


def run_beyond_the_lease() -> str:
    """Run a plain function for longer than its lease, as Celery does; return the status and the lost tasks."""
    django.conf.settings.MCP["TASKS"]["LEASE"] = 3
    lost: list[Task] = []

    @wiring.get_server("default").tool(task=TaskOptions(grace=0))
    def block() -> str:
        """Block until the first lease has expired."""
        row = Task.objects.get()
        first = row.lease_expires
        while row.lease_expires == first or django.utils.timezone.now() < first:
            row.refresh_from_db()
        lost.extend(leases.end_lost_attempts())
        return "done"

    run_attempt_from_thread(start("block"))
    return f"{Task.objects.get().status} {lost}"


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    sys.stdout.write(json.dumps(globals()[name](*arguments)))
