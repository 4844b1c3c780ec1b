"""Activity across processes: running calls and open streams of sessions, and active callers.

Each process reports the activity of its sessions every few seconds, in one event of the event log. Calls and streams do
not write to the database when they start and end. Reports expire, so those of a killed process soon stop counting.
Callers are reported in the same way, because clients of the stateless era have no session.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
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


CALLERS_TOPIC = "callers"
CALLERS_KIND = "active"
CALLER_WINDOW = timedelta(minutes=5)
"""Time after which a caller is no longer listed."""


class SessionActivity(NamedTuple):
    """Open calls and streams of one session."""

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


class ReportedCaller(NamedTuple):
    """Caller that used a server recently."""

    server: str
    key: str
    client_id: str
    user_pk: str | None
    kind: str
    """Kind of the credential."""
    last_active: datetime


async def publish_callers(publisher: EventPublisher, sender_id: str, callers: Sequence[Sequence[str | None]]) -> None:
    """Publish the callers of one process: server, key, client, primary key of the user, and kind of each."""
    payload = {"by": sender_id, "callers": [[*caller] for caller in callers]}
    with suppress(Error, Overloaded):  # the event log records its own failures
        await publisher.publish(EventDraft(CALLERS_TOPIC, CALLERS_KIND, payload))


def get_reported_callers() -> list[ReportedCaller]:
    """Return the callers of the last minutes, the latest first. Blocks."""
    since = timezone.now() - CALLER_WINDOW
    reports = StreamEvent.objects.filter(topic=CALLERS_TOPIC, created__gt=since).order_by("seq")
    latest: dict[tuple[str, str], ReportedCaller] = {}
    for payload, created in reports.values_list("payload", "created"):
        for server, key, client_id, user_pk, kind in jsonrpc.loads(payload)["callers"]:
            latest[server, key] = ReportedCaller(server, key, client_id, user_pk, kind, created)
    return sorted(latest.values(), key=lambda caller: caller.last_active, reverse=True)
