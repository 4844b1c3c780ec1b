"""Whom a command is about."""

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet

from mcp_django.contrib.memory.models import Owner
from mcp_django.contrib.memory.privacy import owners_of, owners_with_key


def add_arguments(parser: CommandParser) -> None:
    """A user, or the key of an owner."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("user", nargs="?", help="The username.")
    group.add_argument("--owner", help="The key of an owner who is no user, as the admin shows it: issuer|subject.")


def named(options: dict[str, Any]) -> QuerySet[Owner]:
    """Those that the arguments name. Raises CommandError for a user who does not exist."""
    if options["owner"]:
        return owners_with_key(options["owner"])
    users = get_user_model()
    try:
        user = users._default_manager.get_by_natural_key(options["user"])
    except users.DoesNotExist:
        raise CommandError(f"There is no user {options['user']!r}") from None
    return owners_of(user)
