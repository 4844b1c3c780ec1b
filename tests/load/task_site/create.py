"""Create tasks as a client does, and print their number: python -m tests.load.task_site.create 500."""

import asyncio
import sys

import django


async def create(count: int) -> None:
    from mcp_django import wiring
    from tests.contrib.tasks.clients import TaskClient

    client = TaskClient(wiring.get_server("default"))
    for number in range(count):
        await client.start("again" if number % 2 else "once", number=number)


if __name__ == "__main__":
    django.setup()
    # The app is the current one before a message is sent.
    from tests.load.task_site import celery_app  # noqa: F401

    asyncio.run(create(int(sys.argv[1])))
