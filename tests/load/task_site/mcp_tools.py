"""Tools that note each run in a file, and those of the journal."""

import asyncio
import os
import time

from mcp_django import tool
from mcp_django.types import TaskOptions
from tests.load.task_site import journal_tools  # noqa: F401  # registers its tools

RUN_SECONDS = float(os.environ.get("SITE_RUN_SECONDS", "0.3"))
LONG_SECONDS = 4.0
"""Seconds of a run that is longer than a lease."""


def note_run(name: str, number: int) -> str:
    """Append a line to the file of runs."""
    descriptor = os.open(os.environ["SITE_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{name} {number}\n".encode())
    os.close(descriptor)
    return f"{name} {number}"


@tool(task=TaskOptions(grace=0))
async def once(number: int) -> str:
    """Run once at most."""
    noted = note_run("once", number)
    await asyncio.sleep(RUN_SECONDS)
    return noted


@tool(task=TaskOptions(grace=0, retry=100))
async def again(number: int) -> str:
    """Run until an attempt ends."""
    noted = note_run("again", number)
    await asyncio.sleep(RUN_SECONDS)
    return noted


@tool(task=TaskOptions(grace=0))
def once_blocking(number: int) -> str:
    """Run once at most, on a thread; some runs are longer than a lease."""
    noted = note_run("once_blocking", number)
    time.sleep(RUN_SECONDS if number % 4 else LONG_SECONDS)
    return noted
