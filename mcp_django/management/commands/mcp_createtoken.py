"""Command that creates a personal access token."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from mcp_django.auth.authorization.token_scopes import TokenScopes
from mcp_django.conf import accepts_personal_tokens, get_settings
from mcp_django.management.command_options import get_active_user
from mcp_django.models import PersonalAccessToken
from mcp_django.models.token import DEFAULT_LIFETIME_DAYS, check_scopes


class Command(BaseCommand):
    """Write only the token to stdout: `TOKEN=$(manage.py mcp_createtoken …)`."""

    help = "Create a personal access token for a user and print it once on stdout."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", help="username of the owner of the token")
        parser.add_argument("--name", default="", help="purpose of the token")
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
            default=DEFAULT_LIFETIME_DAYS,
            help=f"days until it expires (default: {DEFAULT_LIFETIME_DAYS})",
        )
        expiry_options.add_argument("--never-expires", action="store_true", help="valid until it is revoked")

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_active_user(options["username"])
        servers = get_settings().servers
        if options["server"] and options["server"] not in servers:
            raise CommandError(f"Unknown server {options['server']!r}; use one of: {', '.join(servers)}.")

        expires = None
        if not options["never_expires"]:
            if not 1 <= options["days"] <= 36500:
                raise CommandError("--days must be between 1 and 36500.")
            expires = timezone.now() + timedelta(days=options["days"])

        token_scopes = TokenScopes(user)
        scopes = options["scopes"]
        if scopes is None:
            scopes = token_scopes.get_preset(options["server"])
        try:
            check_scopes(scopes)
            token_scopes.check(scopes)
            row, token = PersonalAccessToken.issue(
                user=user,
                name=options["name"] or "mcp_createtoken",
                scopes=scopes,
                audience=options["server"],
                expires=expires,
            )
        except ValidationError as problem:
            raise CommandError(" ".join(problem.messages)) from None

        until = "never" if expires is None else f"{expires:%Y-%m-%d %H:%M %Z}"
        self.stderr.write(f"{row} for {user}; expires: {until}. It is not stored and will not be shown again.")
        if not accepts_personal_tokens():
            self._warn('The token can do nothing: MCP["AUTH"] does not contain "token".')
        if (missing := token_scopes.find_missing(row.scopes, row.audience)) is not None:
            self._warn(str(missing))
        self.stdout.write(token)

    def _warn(self, text: str) -> None:
        self.stderr.write(self.style.WARNING(f"Warning: {text}"))
