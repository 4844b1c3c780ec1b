"""Deletes what has expired."""

from typing import Any

from django.core.management.base import BaseCommand

from mcp_django.contrib.memory.expiry import expire


class Command(BaseCommand):
    """What has expired is not shown any more, and is deleted when its owner writes; this does it for everybody."""

    help = "Delete the conversations and facts that have expired, and owners of whom nothing is left."

    def handle(self, *args: Any, **options: Any) -> None:
        gone = expire()
        self.stdout.write(
            f"Deleted conversations: {gone.conversations}, facts: {gone.facts}, owners without either: {gone.owners}."
        )
