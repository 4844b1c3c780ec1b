"""Command `mcp_memory_erase`: erase the stored data of a user."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from mcp_django.contrib.memory.management import add_arguments, find_named_owners
from mcp_django.contrib.memory.privacy import erase_owners
from mcp_django.management.output import CleanCommand


class Command(CleanCommand):
    """Erase the stored data of a user; deleting the user has the same effect."""

    help = "Delete the stored data of a user permanently: conversations and facts of all clients."

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser)
        parser.add_argument(
            "--noinput", "--no-input", action="store_false", dest="interactive", help="Do not ask for confirmation."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        owners = find_named_owners(options)
        who = options["owner"] or options["user"]
        if options["interactive"] and self.ask(f"Erase the memory of {who} permanently? Type 'yes':") != "yes":
            raise CommandError("Nothing was erased.")
        gone = erase_owners(owners)
        self.stdout.write(f"Erased conversations: {gone.conversations}, facts: {gone.facts}.")
