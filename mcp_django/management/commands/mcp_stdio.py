"""Command that serves one client on stdin and stdout.

MCP clients start it as a subprocess.
"""

import asyncio
import os
import signal
from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connections

from mcp_django.conf import get_settings
from mcp_django.management.command_options import add_caller_options, add_server_option
from mcp_django.management.output import CleanCommand
from mcp_django.management.stdio_user import Identity, identify_token_bearer, identify_user
from mcp_django.models import Session
from mcp_django.transports.connection.options import CloseReason
from mcp_django.transports.services import get_transport_services
from mcp_django.transports.stdio.redirect import StandardStreams, redirect_standard_streams
from mcp_django.transports.stdio.stdio import (
    EXIT_TIMEOUT_SECONDS,
    IdentifyClient,
    ServerStartError,
    exit_after,
    serve_process,
)

TOKEN_VARIABLE, USER_VARIABLE = "MCP_TOKEN", "MCP_USER"
CLEAN_CLOSE_REASONS = (CloseReason.CLIENT_GONE, CloseReason.SHUTDOWN)


class Command(CleanCommand):
    """Serve the protocol on stdout; all other output is redirected to stderr.

    The exit code is 0 if the client closed the streams, 1 after an error, and 128 plus the signal number after a
    signal.
    """

    help = "Serve an MCP client that has started this process, on stdin and stdout."

    def add_arguments(self, parser: ArgumentParser) -> None:
        user_help = f"username to act as, with this user's permissions (default: ${USER_VARIABLE})"
        add_caller_options(parser, user_help=user_help)
        add_server_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            streams = redirect_standard_streams()
        except OSError:
            raise CommandError("stdin and stdout must be open; start this command from an MCP client") from None
        # Removed from the environment, so that tools and their subprocesses cannot read the token.
        token = os.environ.pop(TOKEN_VARIABLE, "")
        alias = options["server"]
        if "stdio" not in get_settings().servers[alias].transports:
            raise CommandError(f'MCP["SERVERS"]["{alias}"]["TRANSPORTS"] does not contain "stdio"')
        self._check_database()
        identify = self._create_identify(alias, options["user"], options["scopes"], token)
        connections.close_all()

        try:
            ended = asyncio.run(self._serve(alias, streams, identify))
        except ServerStartError as problem:
            raise CommandError(str(problem)) from problem
        if isinstance(ended, signal.Signals):
            raise SystemExit(128 + ended)
        if ended not in CLEAN_CLOSE_REASONS:
            raise CommandError(f"The connection was closed: {ended.value}")

    def _check_database(self) -> None:
        """Report an unusable database at the start.

        The server runs anyway, because some calls may not need it.
        """
        try:
            Session.objects.exists()
        except Error as problem:
            self.stderr.write(f"The database cannot be used; check that it runs and is migrated: {problem}".rstrip())

    def _create_identify(self, alias: str, user: str | None, scopes: list[str] | None, token: str) -> IdentifyClient:
        """Return a function that identifies the client, to be called in the event loop."""
        if user is None and token:
            if scopes:
                raise CommandError(f"--scope requires --user; the token in {TOKEN_VARIABLE} has its own scopes")
            return partial(identify_token_bearer, alias, token)
        try:
            identity = identify_user(alias, user or os.environ.get(USER_VARIABLE) or None, scopes)
        except Error as problem:
            raise CommandError(f"The user cannot be read: {problem}".rstrip()) from None

        async def return_identity() -> Identity:
            return identity

        return return_identity

    async def _serve(
        self, alias: str, streams: StandardStreams, identify: IdentifyClient
    ) -> CloseReason | signal.Signals:
        code = 1
        try:
            ended = await serve_process(get_transport_services(alias), streams, identify=identify)
            code = 128 + ended if isinstance(ended, signal.Signals) else int(ended not in CLEAN_CLOSE_REASONS)
            return ended
        finally:
            exit_after(EXIT_TIMEOUT_SECONDS, code)
