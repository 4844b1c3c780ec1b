"""Work beside whatever is being answered."""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

_running: set[asyncio.Task[None]] = set()
"""The loop knows its tasks weakly."""


def run_aside(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a task of its own, in a clean context."""
    _running.add(task := asyncio.get_running_loop().create_task(work, context=contextvars.Context()))
    task.add_done_callback(_running.discard)
