"""What is going on in sessions over all processes: calls in flight and open streams, for people who look.

A process with anything open says so in the log every few seconds, in one event for all its sessions; nothing is counted
in the database while calls come and go. What was not repeated lately is not believed, so a process that was killed
counts no longer than that.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import Error
from django.utils import timezone

from mcp_django.models import StreamEvent
from mcp_django.protocol import jsonrpc
from mcp_django.runtime.events.event_log import Draft
from mcp_django.runtime.events.invalidation import LOOK_EVERY
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.server.ports import Overloaded

TOPIC = "activity"
KIND = "open"
BELIEVED = 2.5 * LOOK_EVERY
"""Seconds for which a report counts."""


class Activity(NamedTuple):
    """What one session has open."""

    calls: int = 0
    """In flight."""
    streams: int = 0
    """Of its own, without a call."""


class Reports:
    """What one process says. `name` tells it from others."""

    def __init__(self, feeds: Callable[[], Feeds], name: str) -> None:
        self._feeds, self._name = feeds, name
        self._said = False
        self._tasks: set[asyncio.Task[None]] = set()

    def say(self, found: Mapping[Any, Activity]) -> None:
        """Report this, in a task of its own; nothing once, and then no more."""
        if found or self._said:
            self._said = bool(found)
            task = asyncio.get_running_loop().create_task(self._publish(dict(found)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _publish(self, found: dict[Any, Activity]) -> None:
        sessions = {str(pk): [*activity] for pk, activity in found.items()}
        try:
            await self._feeds().publish(Draft(TOPIC, KIND, {"by": self._name, "sessions": sessions}))
        except (Error, Overloaded):
            pass  # the next one follows soon, and the log of events complains for itself


def reported() -> dict[int, Activity]:
    """What sessions have open, by their primary keys, as processes last said. It blocks."""
    since = timezone.now() - timedelta(seconds=BELIEVED)
    said = StreamEvent.objects.filter(topic=TOPIC, created__gt=since).order_by("seq").values_list("payload", flat=True)
    latest = {report["by"]: report["sessions"] for report in map(jsonrpc.loads, said)}
    total: dict[int, Activity] = {}
    for sessions in latest.values():
        for pk, (calls, streams) in sessions.items():
            before = total.get(int(pk), Activity())
            total[int(pk)] = Activity(before.calls + calls, before.streams + streams)
    return total
