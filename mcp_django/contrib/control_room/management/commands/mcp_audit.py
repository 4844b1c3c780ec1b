"""`manage.py mcp_audit verify`: check of the hash chain of recorded calls."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mcp_django.contrib.control_room.models import CallLogEntry, ChainHead
from mcp_django.contrib.control_room.recording.chain import UNSEALED, verify_chain
from mcp_django.contrib.control_room.recording.writer import get_alias


class Command(BaseCommand):
    """Verify the chains, and print what was altered, removed or inserted."""

    help = 'Check the rows of calls that were written with MCP["RECORD"]["CHAIN"]. Exit with status 1 for a problem.'

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=("verify",))

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each problem, and the ends of the chains, which may be kept elsewhere."""
        alias = get_alias()
        problems = 0
        for problem in verify_chain(alias):
            problems += 1
            self.stderr.write(f"{problem.kind}: {problem.process}: {problem.text}")
        for head in ChainHead._default_manager.using(alias).order_by("process"):
            self.stdout.write(f"{head.process}: {head.number} rows, the last one at {head.at:%Y-%m-%d %H:%M:%S} UTC")
        if problems:
            raise CommandError(f"{problems} problem{'' if problems == 1 else 's'} found")
        count = CallLogEntry.objects.using(alias).exclude(UNSEALED).count()
        self.stdout.write(f"{count} row{'' if count == 1 else 's'} verified, no problem found.")
