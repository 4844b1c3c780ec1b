"""Creation of a personal access token by a command: its options, and the token on stdout."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from mcp_django.auth.authorization.token_scopes import TokenScopes
from mcp_django.conf import accepts_personal_tokens, get_settings
from mcp_django.models import PersonalAccessToken
from mcp_django.models.token import DEFAULT_LIFETIME_DAYS, check_scopes, get_default_days

MAX_LIFETIME_DAYS = 36500


def add_token_options(parser: ArgumentParser) -> None:
    """Add the options of a new token: scopes, server and expiry."""
    parser.add_argument(
        "--scope",
        action="append",
        dest="scopes",
        metavar="SCOPE",
        help="may be repeated (default: the REQUIRED_SCOPES of its servers)",
    )
    parser.add_argument("--server", default="", help="alias of the only server to accept it (default: all servers)")
    expiry_options = parser.add_mutually_exclusive_group()
    expiry_options.add_argument(
        "--days",
        type=int,
        help=f"days until it expires (default: {DEFAULT_LIFETIME_DAYS}, or MAX_TOKEN_DAYS if that is less)",
    )
    expiry_options.add_argument("--never-expires", action="store_true", help="valid until it is revoked")


def print_new_token(command: BaseCommand, user: Any, name: str, options: Mapping[str, Any]) -> None:
    """Create a token for a user, and write it to stdout, and everything else to stderr.

    Raises CommandError for invalid options.
    """
    servers = get_settings().servers
    if options["server"] and options["server"] not in servers:
        raise CommandError(f"Unknown server {options['server']!r}; use one of: {', '.join(servers)}.")
    expires = _read_expiry(options)
    token_scopes = TokenScopes(user)
    scopes = options["scopes"]
    if scopes is None:
        scopes = token_scopes.get_preset(options["server"])
    try:
        check_scopes(scopes)
        token_scopes.check(scopes)
        row, token = PersonalAccessToken.issue(
            user=user, name=name, scopes=scopes, audience=options["server"], expires=expires
        )
    except ValidationError as problem:
        raise CommandError(" ".join(problem.messages)) from None

    until = "never" if expires is None else f"{expires:%Y-%m-%d %H:%M %Z}"
    command.stderr.write(f"{row} for {user}; expires: {until}. It is not stored and will not be shown again.")
    if not accepts_personal_tokens():
        _warn(command, 'The token can do nothing: MCP["AUTH"] does not contain "token".')
    if (missing := token_scopes.find_missing(row.scopes, row.audience)) is not None:
        _warn(command, str(missing))
    command.stdout.write(token)


def _read_expiry(options: Mapping[str, Any]) -> datetime | None:
    if options["never_expires"]:
        return None
    days = get_default_days() if options["days"] is None else options["days"]
    if not 1 <= days <= MAX_LIFETIME_DAYS:
        raise CommandError(f"--days must be between 1 and {MAX_LIFETIME_DAYS}.")
    return timezone.now() + timedelta(days=days)


def _warn(command: BaseCommand, text: str) -> None:
    command.stderr.write(f"Warning: {text}", command.style.WARNING)
