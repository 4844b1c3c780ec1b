"""Activity of sessions across processes: running calls and open streams.

Each process reports the activity of its sessions every few seconds, in one event of the event log. Calls and streams do
not write to the database when they start and end. Reports expire, so those of a killed process soon stop counting.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import Error
from django.utils import timezone

from mcp_django.models import StreamEvent
from mcp_django.protocol import jsonrpc
from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.runtime.events.invalidation import CHECK_INTERVAL_SECONDS
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.server.ports import Overloaded

ACTIVITY_TOPIC = "activity"
ACTIVITY_KIND = "open"
REPORT_TTL_SECONDS = 2.5 * CHECK_INTERVAL_SECONDS
"""Seconds after which a report expires."""


class SessionActivity(NamedTuple):
    """Activity of one session."""

    calls: int = 0
    """Number of running calls."""
    streams: int = 0
    """Number of open streams that do not belong to a call."""


async def publish_activity(
    publisher: EventPublisher, sender_id: str, activities: Mapping[Any, SessionActivity]
) -> None:
    """Publish the activity of the sessions of one process, which `sender_id` identifies."""
    sessions = {str(pk): [*activity] for pk, activity in activities.items()}
    with suppress(Error, Overloaded):  # the next report follows soon, and the event log records its own failures
        await publisher.publish(EventDraft(ACTIVITY_TOPIC, ACTIVITY_KIND, {"by": sender_id, "sessions": sessions}))


def get_reported_activity() -> dict[int, SessionActivity]:
    """Return the last reported activity by session primary key. Blocks."""
    since = timezone.now() - timedelta(seconds=REPORT_TTL_SECONDS)
    payloads = (
        StreamEvent.objects.filter(topic=ACTIVITY_TOPIC, created__gt=since)
        .order_by("seq")
        .values_list("payload", flat=True)
    )
    latest = {report["by"]: report["sessions"] for report in map(jsonrpc.loads, payloads)}
    total: dict[int, SessionActivity] = {}
    for sessions in latest.values():
        for pk, (calls, streams) in sessions.items():
            previous = total.get(int(pk), SessionActivity())
            total[int(pk)] = SessionActivity(previous.calls + calls, previous.streams + streams)
    return total
