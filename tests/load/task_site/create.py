"""Create tasks as a client does, of several tools in turn: python -m tests.load.task_site.create 500 once again."""

import asyncio
import sys
from collections.abc import Sequence

import django


async def create(count: int, tools: Sequence[str]) -> None:
    from mcp_django import wiring
    from tests.contrib.tasks.clients import TaskClient

    client = TaskClient(wiring.get_server("default"))
    for number in range(count):
        await client.start(tools[number % len(tools)], number=number)


if __name__ == "__main__":
    django.setup()
    asyncio.run(create(int(sys.argv[1]), sys.argv[2:]))
