"""Command that removes a user from the records of calls."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from mcp_django.contrib.control_room.recording.maintenance import remove_user
from mcp_django.extensions.operators import CleanCommand


class Command(CleanCommand):
    """Replace a user in the records of calls by a random name. Counts stay."""

    help = "Remove a user from the records of calls: name, client, arguments. Counts stay."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="user name, or the primary key of a deleted user")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find the user by name. Without one, the argument is a primary key."""
        user = get_user_model()._default_manager.filter(**{get_user_model().USERNAME_FIELD: options["user"]}).first()
        changed = remove_user(options["user"] if user is None else str(user.pk))
        if not changed and user is None:
            raise CommandError(f"No user and no record has the name or the key {options['user']!r}; check the name")
        self.stdout.write(f"Changed {changed} row{'' if changed == 1 else 's'}.")
