"""Deletes unused OAuth clients and expired records of codes and tokens."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.flows import refresh_rotation, revocation
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.extensions.operators import CleanCommand


class Command(CleanCommand):
    """Command to run once a day."""

    help = (
        "Delete unused OAuth clients without a valid token that registered themselves or are described by a document. "
        "Clients that operators created, approved, trusted, blocked or pinned are kept."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--days", type=float, help="days without use (default: the setting UNUSED_DAYS)")
        parser.add_argument("--dry-run", action="store_true", help="print the number of clients without deleting them")

    def handle(self, *args: Any, **options: Any) -> None:
        days = get_settings().unused_days if options["days"] is None else options["days"]
        if not 0 <= days <= 36500:
            raise CommandError("--days must be between 0 and 36500.")
        count = clients.delete_unused(days=days, dry_run=options["dry_run"])
        if not options["dry_run"]:
            revocation.delete_expired_codes()
            refresh_rotation.delete_idle_families()
        verb = "would be deleted" if options["dry_run"] else "deleted"
        self.stdout.write(f"{count} client(s) without use for {days:g} days {verb}.")
