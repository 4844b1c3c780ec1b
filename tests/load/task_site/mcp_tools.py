"""Tools that note each run in a file."""

import asyncio
import os

from mcp_django import tool
from mcp_django.types import TaskOptions

RUN_SECONDS = 0.3


async def note_run(name: str, number: int) -> str:
    """Append a line to the file of runs, and take some time."""
    descriptor = os.open(os.environ["SITE_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{name} {number}\n".encode())
    os.close(descriptor)
    await asyncio.sleep(RUN_SECONDS)
    return f"{name} {number}"


@tool(task=TaskOptions(grace=0))
async def once(number: int) -> str:
    """Run once at most."""
    return await note_run("once", number)


@tool(task=TaskOptions(grace=0, retry=100))
async def again(number: int) -> str:
    """Run until an attempt ends."""
    return await note_run("again", number)
