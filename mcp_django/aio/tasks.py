"""Background tasks that outlive their caller."""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

_running_tasks: set[asyncio.Task[None]] = set()
"""Strong references, because the loop keeps weak ones only."""


def run_in_background(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a background task with a clean context."""
    _running_tasks.add(task := asyncio.get_running_loop().create_task(coroutine, context=contextvars.Context()))
    task.add_done_callback(_running_tasks.discard)
