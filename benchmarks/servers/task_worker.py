"""The measured project of tasks, with a subcommand for each step.

    python benchmarks/servers/task_worker.py migrate
    python benchmarks/servers/task_worker.py create COUNT
    python benchmarks/servers/task_worker.py work CONCURRENCY
    python benchmarks/servers/task_worker.py statements CONCURRENCY

env: BENCH_TASK_DATABASE, an entry of DATABASES. The package is imported from the first entry of the path, so that this
file can measure another checkout, too.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import sys
import time
from collections import Counter
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command

STATEMENT_WORDS = 3
"""First words of a statement that name its kind."""


def configure() -> None:
    """Set up Django with one server, whose tool does nothing."""
    settings.configure(
        DATABASES={"default": json.loads(os.environ["BENCH_TASK_DATABASE"])},
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "mcp_django",
            "mcp_django.contrib.tasks",
        ],
        SECRET_KEY="thrown-away",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        MCP={
            "AUTH": "none",
            "SERVERS": {"default": {"EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"]}},
            "TASKS": {
                "BACKEND": "mcp_django.contrib.tasks.worker.WorkerBackend",
                "TASKS_PER_OWNER": 1_000_000,
                "TASKS_PER_SERVER": 1_000_000,
            },
        },
    )
    django.setup()
    from mcp_django import tool
    from mcp_django.types import TaskOptions

    @tool(task=TaskOptions(grace=0))
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


async def create(count: int) -> float:
    """Create tasks in the same way as calls of a client; return the seconds."""
    from mcp_django import wiring
    from mcp_django.auth.principal import DjangoPrincipal
    from mcp_django.protocol import jsonrpc
    from mcp_django.protocol.revisions import LATEST, Era
    from mcp_django.server.calls.call import Connection
    from mcp_django.server.calls.message_queue import Outbox
    from mcp_django.server.calls.pending import PendingResponse
    from mcp_django.server.pipeline import Pipeline

    pipeline = Pipeline(wiring.get_server("default"))
    era = pipeline.eras[Era.STATELESS]
    connection = Connection(DjangoPrincipal(issuer="bench", subject="ada", client_id="cli"))
    meta = {
        "io.modelcontextprotocol/protocolVersion": LATEST.version,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }

    begun = time.perf_counter()
    for number in range(count):
        params = {"name": "add", "arguments": {"a": number, "b": 7}, "_meta": meta}
        raw = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        outbox = Outbox()
        outbox.loop = asyncio.get_running_loop()
        work = pipeline.handle(era, raw, connection, outbox)
        assert isinstance(work, PendingResponse)
        body = jsonrpc.loads(await work.run)
        assert body["result"]["resultType"] == "task", body
    return time.perf_counter() - begun


def count_statements(concurrency: int) -> dict[str, int]:
    """Run all waiting tasks in this process; return the number of its statements.

    The keys are the first words of the statements.
    """
    from django.db.backends.signals import connection_created

    found: Counter[str] = Counter()

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        found[" ".join(sql.split()[:STATEMENT_WORDS])] += 1
        return execute(sql, params, many, context)

    connection_created.connect(
        lambda connection, **_: connection.execute_wrappers.append(listen), weak=False, dispatch_uid="count"
    )
    work(concurrency)
    return dict(found.most_common())


def work(concurrency: int) -> None:
    """Run all waiting tasks."""
    call_command("mcp_worker", concurrency=concurrency, burst=True, stdout=io.StringIO())


def main() -> None:
    """Run a subcommand."""
    command, *arguments = sys.argv[1:]
    number = int(arguments[0]) if arguments else 0
    configure()
    logging.disable(logging.INFO)
    if command == "migrate":
        call_command("migrate", verbosity=0)
    elif command == "create":
        print(json.dumps(asyncio.run(create(number))))
    elif command == "statements":
        print(json.dumps(count_statements(number)))
    else:
        work(number)


if __name__ == "__main__":
    main()
