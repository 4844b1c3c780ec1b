"""Background tasks that outlive their caller."""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

_running: set[asyncio.Task[None]] = set()
"""Strong references, because the loop keeps weak ones only."""


def run_aside(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a background task with a clean context."""
    _running.add(task := asyncio.get_running_loop().create_task(work, context=contextvars.Context()))
    task.add_done_callback(_running.discard)
