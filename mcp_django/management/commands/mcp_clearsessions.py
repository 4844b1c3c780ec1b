"""Command that deletes ended sessions, old events and expired idempotency keys."""

from typing import Any

from mcp_django.conf import get_settings
from mcp_django.management.output import CleanCommand
from mcp_django.models import Session
from mcp_django.runtime.calls import idempotency
from mcp_django.runtime.events.event_log import EventLog

BATCH_SIZE = 500


class Command(CleanCommand):
    """Delete all expired rows at once, which servers otherwise do gradually."""

    help = "Delete the MCP sessions that have ended or expired, old events, and other rows that have expired."

    def handle(self, *args: Any, **options: Any) -> None:
        limits = get_settings().limits
        while Session.objects.end_expired(idle=limits.session_idle, limit=BATCH_SIZE):
            pass

        deleted = 0
        while purged := Session.objects.ended().purge(limit=BATCH_SIZE):
            deleted += purged
        events = others = 0
        while purged := EventLog().delete_old(max_age_seconds=limits.event_ttl, limit=BATCH_SIZE):
            events += purged
        while purged := idempotency.delete_expired(limit=BATCH_SIZE):
            others += purged

        counts = [
            _format_count(deleted, "session"),
            _format_count(events, "event"),
            _format_count(others, "expired row"),
        ]
        self.stdout.write(f"Deleted {counts[0]}, {counts[1]} and {counts[2]}.")


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
