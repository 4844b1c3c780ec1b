"""Deletes clients that came by themselves and are not used any more, and what is kept of tokens that are long gone."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mcp_django.contrib.oauth.clients import expiry
from mcp_django.contrib.oauth.flows import authorization_codes, refresh_rotation
from mcp_django.contrib.oauth.options import get_settings


class Command(BaseCommand):
    """To be run once a day."""

    help = (
        "Delete OAuth clients that registered themselves, or that a document describes, and that have no token and "
        "were not used for a while. Clients that operators made, approved of, trust, blocked or pinned are kept."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--days", type=float, help="days without use (default: UNUSED_DAYS of the settings)")
        parser.add_argument("--dry-run", action="store_true", help="say how many there are, and delete nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        days = get_settings().unused_days if options["days"] is None else options["days"]
        if not 0 <= days <= 36500:
            raise CommandError("--days must be 0 or more, up to a hundred years.")
        count = expiry.clear(days=days, dry_run=options["dry_run"])
        if not options["dry_run"]:
            authorization_codes.clear_expired()
            refresh_rotation.clear_idle()
        verb = "would be deleted" if options["dry_run"] else "deleted"
        self.stdout.write(f"{count} client(s) without use for {days:g} days {verb}.")
