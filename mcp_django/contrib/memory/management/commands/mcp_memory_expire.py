"""Command `mcp_memory_expire`: delete expired data."""

from typing import Any

from mcp_django.contrib.memory.expiry import expire
from mcp_django.management.output import CleanCommand


class Command(CleanCommand):
    """Delete expired data of all owners; a write deletes that of its owner only."""

    help = "Delete expired conversations and facts, and owners without data."

    def handle(self, *args: Any, **options: Any) -> None:
        gone = expire()
        self.stdout.write(
            f"Deleted conversations: {gone.conversations}, facts: {gone.facts}, owners without data: {gone.owners}."
        )
