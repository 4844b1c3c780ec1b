"""Activity of sessions across processes: running calls and open streams.

Each process reports the activity of its sessions every few seconds, in one event of the event log. Calls and streams do
not write to the database when they start and end. Reports expire, so those of a killed process soon stop counting.
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
"""Seconds after which a report expires."""


class Activity(NamedTuple):
    """Activity of one session."""

    calls: int = 0
    """Number of running calls."""
    streams: int = 0
    """Number of open streams that do not belong to a call."""


class Reports:
    """Activity reporter of one process, which `sender_id` identifies."""

    def __init__(self, feeds: Callable[[], Feeds], name: str) -> None:
        self._feeds, self._name = feeds, name
        self._said = False
        self._tasks: set[asyncio.Task[None]] = set()

    def say(self, found: Mapping[Any, Activity]) -> None:
        """Publish the activity in a background task; an empty report is sent once."""
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
            pass  # the next report follows soon, and the event log records its own failures


def reported() -> dict[int, Activity]:
    """Return the last reported activity by session primary key. Blocks."""
    since = timezone.now() - timedelta(seconds=BELIEVED)
    said = StreamEvent.objects.filter(topic=TOPIC, created__gt=since).order_by("seq").values_list("payload", flat=True)
    latest = {report["by"]: report["sessions"] for report in map(jsonrpc.loads, said)}
    total: dict[int, Activity] = {}
    for sessions in latest.values():
        for pk, (calls, streams) in sessions.items():
            before = total.get(int(pk), Activity())
            total[int(pk)] = Activity(before.calls + calls, before.streams + streams)
    return total
