"""Management commands of the memory, and their selection of owners by arguments."""

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet

from mcp_django.contrib.memory.models import Owner
from mcp_django.contrib.memory.privacy import find_owners, find_owners_by_key


def add_arguments(parser: CommandParser) -> None:
    """Add the arguments for a username or the key of an owner."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("user", nargs="?", help="The username.")
    group.add_argument(
        "--owner", help="The key of an owner without a user account, as the admin shows it: issuer|subject."
    )


def find_named_owners(options: dict[str, Any]) -> QuerySet[Owner]:
    """Return the selected owners. Raises CommandError for an unknown user."""
    if options["owner"]:
        return find_owners_by_key(options["owner"])
    users = get_user_model()
    try:
        user = users._default_manager.get_by_natural_key(options["user"])
    except users.DoesNotExist:
        raise CommandError(f"Unknown user {options['user']!r}") from None
    return find_owners(user)
