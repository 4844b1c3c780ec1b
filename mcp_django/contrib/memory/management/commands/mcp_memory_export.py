"""Command `mcp_memory_export`: print the stored data of a user."""

from typing import Any

from django.core.management.base import CommandParser

from mcp_django.contrib.memory.management import add_arguments, find_named_owners
from mcp_django.contrib.memory.privacy import export_owners
from mcp_django.management.output import CleanCommand


class Command(CleanCommand):
    """Print the stored data of a user as JSON."""

    help = "Print the stored data of a user as JSON: conversations and facts of all clients."

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser)
        parser.add_argument("--indent", type=int, default=2, help="Spaces for each level (2); 0 for one line.")

    def handle(self, *args: Any, **options: Any) -> None:
        exported = {"user": options["user"], "owners": export_owners(find_named_owners(options))}
        self.write_json(exported, indent=options["indent"] or None)
