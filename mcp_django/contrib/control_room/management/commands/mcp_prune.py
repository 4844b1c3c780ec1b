"""Command that sums the counts of calls and deletes old rows."""

from argparse import ArgumentParser
from typing import Any

from mcp_django.contrib.control_room.recording.maintenance import (
    count_old_rows,
    delete_old_rows,
    iter_deletions,
    iter_prune_steps,
    merge_rollups,
    pause_between,
    remove_deleted_users,
)
from mcp_django.extensions.operators import CleanCommand


class Command(CleanCommand):
    """Delete the records of calls whose retention is over.

    Serving processes do the same each hour.
    """

    help = 'Delete the records of calls that are older than MCP["RECORD"]["KEEP"], in batches.'

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="count the rows, and delete none")
        parser.add_argument("--fast", action="store_true", help="do not pause between two batches")

    def handle(self, *args: Any, **options: Any) -> None:
        """Sum first, so that no minute is deleted before its hour has it."""
        if not options["dry_run"]:
            merge_rollups()
            remove_deleted_users()
        for step in iter_prune_steps():
            if options["dry_run"]:
                count = count_old_rows(step)
            else:
                count = delete_old_rows(step) if options["fast"] else sum(pause_between(iter_deletions(step)))
            verb = "would be deleted" if options["dry_run"] else "deleted"
            self.stdout.write(f"{step.kind}: {count} {verb} (before {step.before:%Y-%m-%d %H:%M} UTC)")
