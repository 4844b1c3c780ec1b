"""Makes an OAuth client."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from mcp_django.contrib.oauth import redirects
from mcp_django.contrib.oauth.clients import clients, document_clients
from mcp_django.contrib.oauth.clients.client_metadata import MOST_BYTES, MOST_NAME, Refused
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens import resource_indicators, scopes
from mcp_django.management.user_option import active_user
from mcp_django.models.token import check_scopes


class Command(BaseCommand):
    """Writes the client's id to stdout, and its secret, if it has one, on a second line."""

    help = (
        "Make an OAuth client that an operator knows, and print its id and, once, its secret. With --redirect-uri it "
        "asks users; with --service-user it gets tokens in that user's name; with neither it may ask what tokens are "
        "good for (introspection)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what users and operators know it by; with --document, its URL")
        parser.add_argument(
            "--redirect-uri", action="append", default=[], dest="redirect_uris", metavar="URI", help="one of its own"
        )
        parser.add_argument("--confidential", action="store_true", help="it can keep a secret, and gets one")
        parser.add_argument("--service-user", metavar="USERNAME", help="the user in whose name it acts, unasked")
        parser.add_argument(
            "--scope", action="append", dest="scopes", metavar="SCOPE", help="the only ones it may have (default: all)"
        )
        parser.add_argument(
            "--resource", action="append", dest="resources", metavar="URL", help="the only servers (default: all)"
        )
        parser.add_argument(
            "--document",
            type=Path,
            metavar="FILE",
            help="keep this copy of the client's metadata document and never fetch it from its URL",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["document"] is not None:
                application, secret = self._pinned(options), ""
            else:
                application, secret = self._made(options)
        except Refused as problem:
            raise CommandError(f"The client was not made: {problem.description}.") from None
        self.stderr.write(f"Made the client {application}.")
        for word in self._unknown(options):
            self.stderr.write(f"{word!r} is not known to the settings: the client gets no token for it.")
        self.stdout.write(application.client_id)
        if secret:
            self.stderr.write("The second line is its secret. It is not stored: this is the only time it is shown.")
            self.stdout.write(secret)

    def _pinned(self, options: dict[str, Any]) -> Any:
        others = ("redirect_uris", "confidential", "service_user", "scopes", "resources")
        if any(options[name] for name in others):
            raise CommandError("--document stands alone: the document says what the client is.")
        try:
            with options["document"].open("rb") as file:
                body = file.read(MOST_BYTES + 1)
        except OSError as problem:
            raise CommandError(f"The document cannot be read: {problem.strerror}.") from None
        return document_clients.pin(options["name"], body)

    def _made(self, options: dict[str, Any]) -> tuple[Any, str]:
        uris, name = options["redirect_uris"], " ".join(options["name"].split())
        if not 0 < len(name) <= MOST_NAME or not name.isprintable():
            raise CommandError(f"The name has 1 to {MOST_NAME} characters that can be seen.")
        for uri in uris:
            if wrong := redirects.problem_with(uri, schemes=get_settings().native_schemes):
                raise CommandError(f"{uri!r}: {wrong}.")
        if uris and options["service_user"]:
            raise CommandError("A client has --redirect-uri and asks users, or --service-user and asks nobody.")
        try:
            check_scopes(options["scopes"] or [])
        except ValidationError as problem:
            raise CommandError(" ".join(problem.messages)) from None
        return clients.make(
            name,
            redirect_uris=uris,
            confidential=options["confidential"],
            service_user=None if (name := options["service_user"]) is None else active_user(name),
            scopes=options["scopes"],
            resources=options["resources"],
        )

    def _unknown(self, options: dict[str, Any]) -> list[str]:
        declared = scopes.declared()
        unknown = [scope for scope in options["scopes"] or () if scope not in declared]
        return unknown + [url for url in options["resources"] or () if resource_indicators.find(url) is None]
