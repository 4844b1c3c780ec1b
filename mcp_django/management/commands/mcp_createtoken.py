"""Command that creates a personal access token."""

from argparse import ArgumentParser
from typing import Any

from mcp_django.management.command_options import get_active_user
from mcp_django.management.output import CleanCommand
from mcp_django.management.token_creation import add_token_options, print_new_token


class Command(CleanCommand):
    """Write only the token to stdout: `TOKEN=$(manage.py mcp_createtoken …)`."""

    help = "Create a personal access token for a user and print it once on stdout."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", help="username of the owner of the token")
        parser.add_argument("--name", default="", help="purpose of the token")
        add_token_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_active_user(options["username"])
        print_new_token(self, user, options["name"] or "mcp_createtoken", options)
