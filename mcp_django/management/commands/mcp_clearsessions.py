"""Deletes sessions that are over."""

from typing import Any

from django.core.management.base import BaseCommand

from ...conf import get_settings
from ...models import Session

SLICE = 500


class Command(BaseCommand):
    """Servers end expired sessions by themselves and delete ended ones after a day; this does both at once."""

    help = "Delete the MCP sessions that have ended or expired."

    def handle(self, *args: Any, **options: Any) -> None:
        idle = get_settings().limits.session_idle
        while Session.objects.reap(idle=idle, most=SLICE):
            pass
        deleted = 0
        while purged := Session.objects.ended().purge(most=SLICE):
            deleted += purged
        self.stdout.write(f"Deleted {deleted} session{'' if deleted == 1 else 's'}.")
