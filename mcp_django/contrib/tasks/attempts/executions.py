"""Executions of this process, and their cancellation from any process.

The process that receives a cancellation publishes it in the event log. A process with executions follows the log, and
so cancels a tool within a second, or at once with a channel layer. The next heartbeat finds a cancellation that was
not received.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp_django import wiring
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.event_loop import (
    Event,
    EventDraft,
    LoopLocal,
    SharedSubscription,
    call_threadsafe,
    is_async_to_sync_loop,
)

logger = get_logger("mcp_django.tasks")
TOPIC = "tasks"
CANCELLED = "cancelled"
"""Kind of the event of a cancelled task."""
CHECK_INTERVAL_SECONDS = 30.0
"""Seconds between two checks whether this process still has executions."""
_running: dict[str, "asyncio.Task[Any]"] = {}
"""Executions of this process, by the id of their task."""


@contextmanager
def register_execution(id: str, execution: "asyncio.Task[Any]") -> Iterator[None]:
    """Let an execution be cancelled by the id of its task, for the time of a `with` block."""
    _running[id] = execution
    try:
        yield
    finally:
        if _running.get(id) is execution:
            del _running[id]


async def follow_cancellations() -> bool:
    """Receive the cancellations of other processes on this loop, while it has executions.

    Returns True if the subscription is new, so that earlier cancellations may have been missed. A loop that ends with
    its request does not subscribe.
    """
    if is_async_to_sync_loop():
        return False
    subscription = _subscriptions.get()
    if subscription.is_active:
        return False
    await asyncio.wait([subscription.start()])
    return True


async def cancel_execution(id: str) -> None:
    """Cancel the tool of a task whose row is cancelled already, in each process.

    A failure is logged, because the lease of the attempt is lost in any case.
    """
    if cancel_local_execution(id):
        return
    try:
        await wiring.get_services().event_publisher.publish(EventDraft(TOPIC, CANCELLED, {"task": id}))
    except Exception:
        logger.warning("A cancellation was not published; the next heartbeat finds it", exc_info=True)


def cancel_local_execution(id: str) -> bool:
    """Cancel the tool of a task that runs in this process; return False if it runs elsewhere. Thread-safe."""
    execution = _running.get(id)
    if execution is None:
        return False
    call_threadsafe(execution.get_loop(), execution.cancel)
    return True


def _on_event(event: Event) -> None:
    if event.kind == CANCELLED:
        cancel_local_execution(event.payload["task"])


def _create_subscription() -> SharedSubscription:
    return SharedSubscription(
        wiring.get_services().event_publisher, TOPIC, _on_event, lambda: bool(_running), CHECK_INTERVAL_SECONDS
    )


_subscriptions = LoopLocal(_create_subscription)
