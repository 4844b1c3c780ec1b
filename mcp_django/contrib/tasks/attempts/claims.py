"""Claims of this process: a task is held from the commit of its claim on.

A tool may block the event loop when the claim returns, for longer than a lease. So the thread of the claim gives the
lease to the heartbeats.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mcp_django.contrib.tasks.attempts.ends import repeat_write
from mcp_django.contrib.tasks.attempts.heartbeats import HEARTBEATS, TaskLease
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.rows import store
from mcp_django.extensions.errors import find_database_failure
from mcp_django.extensions.event_loop import is_async_to_sync_loop, run_in_background, start_task


class ClaimedTask(NamedTuple):
    """A task that this process has claimed, and its lease."""

    task: Task
    lease: TaskLease


async def claim_tasks(claim: Callable[[], Sequence[Task]], give_up: Callable[[], object]) -> list[ClaimedTask]:
    """Call a blocking function that claims tasks, and hold their leases. The caller releases them.

    `give_up` is a blocking function that returns the claimed tasks. It is called if the caller is cancelled, and if the
    database fails, because the claim may have been committed nevertheless. Raises the errors of `claim`.
    """
    loop, is_on_thread = asyncio.get_running_loop(), not is_async_to_sync_loop()
    claiming = start_task(store.run_on_rows(_claim, claim, loop, is_on_thread))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        await _give_up_claim(claiming, give_up)
        raise
    except Exception as problem:
        if find_database_failure(problem) is not None:
            run_in_background(_give_up_claim(claiming, give_up))
        raise


def _claim(
    claim: Callable[[], Sequence[Task]], loop: asyncio.AbstractEventLoop, is_on_thread: bool
) -> list[ClaimedTask]:
    claimed = [ClaimedTask(task, TaskLease(task, loop)) for task in claim()]
    for each in claimed if is_on_thread else ():
        HEARTBEATS.hold(each.lease)
    return claimed


async def _give_up_claim(claiming: "asyncio.Task[list[ClaimedTask]]", give_up: Callable[[], object]) -> None:
    await asyncio.wait([claiming])
    try:
        await repeat_write(lambda: store.run_on_rows(give_up))
    finally:
        with contextlib.suppress(Exception):
            for each in claiming.result():
                HEARTBEATS.release(each.lease)
