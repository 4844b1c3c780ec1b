"""Serves one client on the standard streams: what MCP clients start as a subprocess."""

import asyncio
import os
import signal
from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error, connections

from mcp_django.conf import get_settings
from mcp_django.management.stdio_user import Identity, as_user, with_token
from mcp_django.models import Session
from mcp_django.transports.connection.options import Ending
from mcp_django.transports.factory import get_duplexes
from mcp_django.transports.stdio.redirect import Streams, take
from mcp_django.transports.stdio.stdio import LAST_MOMENTS, Identify, NotStarted, leave_within, serve_process
from mcp_django.wiring import aliases, get_server, lifecycle

TOKEN, USER = "MCP_TOKEN", "MCP_USER"
ENDED_WELL = (Ending.GONE, Ending.CLOSING)


class Command(BaseCommand):
    """stdout carries messages of the protocol and nothing else; whatever prints, prints to stderr.

    The exit code is 0 when the client has closed the streams, 1 when something is wrong, and 128 and the number of the
    signal when one asked for the end.
    """

    help = "Serve an MCP client that has started this process, on stdin and stdout."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", help=f"username to act as, with this user's permissions (default: ${USER})")
        parser.add_argument(
            "--scope", action="append", dest="scopes", help="hold only this scope; may be given several times"
        )
        parser.add_argument("--server", default="default", choices=aliases(), help="the server's alias")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            streams = take()
        except OSError:
            raise CommandError("stdin and stdout must be open; MCP clients open them") from None
        # Whoever the client is: neither tools nor what they start need to know it.
        token = os.environ.pop(TOKEN, "")
        alias = options["server"]
        if "stdio" not in get_settings().servers[alias].transports:
            raise CommandError(f'MCP["SERVERS"]["{alias}"]["TRANSPORTS"] does not have "stdio"')
        self._look_at_database()
        identify = self._identity(alias, options["user"], options["scopes"], token)
        connections.close_all()
        try:
            ended = asyncio.run(self._serve(alias, streams, identify))
        except NotStarted as problem:
            raise CommandError(str(problem)) from problem
        if isinstance(ended, signal.Signals):
            raise SystemExit(128 + ended)
        if ended not in ENDED_WELL:
            raise CommandError(f"The connection was closed: {ended.value}")

    def _look_at_database(self) -> None:
        """Say at once what every call would fail with; there may be those that do without."""
        try:
            Session.objects.exists()
        except Error as problem:
            self.stderr.write(f"The database cannot be used (is it up, and migrated?): {problem}".rstrip())

    def _identity(self, alias: str, user: str | None, scopes: list[str] | None, token: str) -> Identify:
        """Finds out who the client is, once there is a loop."""
        if user is None and token:
            if scopes:
                raise CommandError(f"--scope is for --user; the token in {TOKEN} has scopes of its own")
            return partial(with_token, alias, token)
        try:
            identity = as_user(alias, user or os.environ.get(USER) or None, scopes)
        except Error as problem:
            raise CommandError(f"The user cannot be read: {problem}".rstrip()) from None

        async def known() -> Identity:
            return identity

        return known

    async def _serve(self, alias: str, streams: Streams, identify: Identify) -> Ending | signal.Signals:
        code = 1
        try:
            ended = await serve_process(
                get_server(alias), get_duplexes(alias), streams, lifecycle=lifecycle(), identify=identify
            )
            code = 128 + ended if isinstance(ended, signal.Signals) else int(ended not in ENDED_WELL)
            return ended
        finally:
            leave_within(LAST_MOMENTS, code)
