"""`manage.py mcp_audit verify`: check of the hash chain of recorded calls."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from mcp_django.contrib.control_room.models import CallLogEntry, ChainHead
from mcp_django.contrib.control_room.options import get_settings
from mcp_django.contrib.control_room.recording.chain.anchors import Anchor, UnreadableAnchor, read_anchors
from mcp_django.contrib.control_room.recording.chain.heads import START_PROCESS
from mcp_django.contrib.control_room.recording.chain.seals import UNSEALED
from mcp_django.contrib.control_room.recording.chain.verification import verify_chain
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.extensions.operators import CleanCommand


class Command(CleanCommand):
    """Verify the chains, and print the rows that were altered, removed or inserted."""

    help = 'Check the rows of calls that were written with MCP["RECORD"]["CHAIN"]. Exit with status 1 for a problem.'

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=("verify",))
        parser.add_argument(
            "--anchor",
            metavar="FILE",
            action="append",
            default=[],
            help='file with ends of chains, can be repeated (default: the one of MCP["RECORD"]["ANCHOR"])',
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each problem, and the ends of the chains."""
        alias = get_alias()
        anchors = _read(options["anchor"] or [path for path in (get_settings().anchor,) if path])
        problems = 0
        for problem in verify_chain(alias, anchors):
            problems += 1
            self.stderr.write(": ".join(part for part in problem if part))
        for head in ChainHead._default_manager.using(alias).exclude(process=START_PROCESS).order_by("process"):
            self.stdout.write(f"{head.process}: {head.number} rows, the last one at {head.at:%Y-%m-%d %H:%M:%S} UTC")
        if problems:
            raise CommandError(f"{problems} problem{'' if problems == 1 else 's'} found")
        count = CallLogEntry.objects.using(alias).exclude(UNSEALED).count()
        self.stdout.write(f"{count} row{'' if count == 1 else 's'} verified, no problem found.")


def _read(paths: list[str]) -> list[Anchor]:
    try:
        return list(read_anchors(paths))
    except (UnreadableAnchor, OSError) as error:
        raise CommandError(f"The anchor cannot be read: {error}") from None
