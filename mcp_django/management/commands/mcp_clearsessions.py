"""Command that deletes ended sessions, old events and expired idempotency keys."""

from typing import Any

from django.core.management.base import BaseCommand

from mcp_django.conf import get_settings
from mcp_django.models import Session
from mcp_django.runtime.calls import idempotency
from mcp_django.runtime.events.event_log import EventLog

SLICE = 500


class Command(BaseCommand):
    """Delete all expired rows at once, which servers otherwise do gradually."""

    help = "Delete the MCP sessions that have ended or expired, old events, and other rows that have expired."

    def handle(self, *args: Any, **options: Any) -> None:
        limits = get_settings().limits
        while Session.objects.reap(idle=limits.session_idle, most=SLICE):
            pass

        deleted = 0
        while purged := Session.objects.ended().purge(most=SLICE):
            deleted += purged
        events = others = 0
        while purged := EventLog().purge(seconds=limits.event_ttl, most=SLICE):
            events += purged
        while purged := idempotency.purge(most=SLICE):
            others += purged

        said = [_count(deleted, "session"), _count(events, "event"), _count(others, "expired row")]
        self.stdout.write(f"Deleted {said[0]}, {said[1]} and {said[2]}.")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
