"""Creates an OAuth client."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from mcp_django.contrib.oauth import redirects
from mcp_django.contrib.oauth.clients import clients, documents
from mcp_django.contrib.oauth.clients.client_metadata import MAX_METADATA_BYTES, MAX_NAME_CHARS, ClientMetadataRefused
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens import resource_indicators, scopes
from mcp_django.extensions.operators import CleanCommand
from mcp_django.management.command_options import get_active_user
from mcp_django.models.token import check_scopes


class Command(CleanCommand):
    """Command that writes the client's id to stdout, and its secret on a second line."""

    help = (
        "Create an OAuth client and print its id and, only once, its secret. With --redirect-uri the client requests "
        "the consent of users. With --service-user it gets tokens for that user. With neither it may only introspect "
        "tokens."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="display name of the client; with --document, its URL")
        parser.add_argument(
            "--redirect-uri",
            action="append",
            default=[],
            dest="redirect_uris",
            metavar="URI",
            help="redirect URI (repeatable)",
        )
        parser.add_argument("--confidential", action="store_true", help="create a confidential client with a secret")
        parser.add_argument("--service-user", metavar="USERNAME", help="user that the client acts for, without consent")
        parser.add_argument(
            "--scope", action="append", dest="scopes", metavar="SCOPE", help="allowed scope, repeatable (default: all)"
        )
        parser.add_argument(
            "--resource",
            action="append",
            dest="resources",
            metavar="URL",
            help="allowed server, repeatable (default: all)",
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
                application, secret = self._pin_client(options), ""
            else:
                application, secret = self._create_client(options)
        except ClientMetadataRefused as problem:
            raise CommandError(f"Creating the client failed: {problem.description}.") from None

        self.stderr.write(f"Created the client {application}.")
        for word in self._find_unknown(options):
            self.stderr.write(f"{word!r} is not in the settings: the client gets no token for it.")
        self.stdout.write(application.client_id)
        if secret:
            self.stderr.write("The second line is its secret. It is not stored: this is the only time it is shown.")
            self.stdout.write(secret)

    def _pin_client(self, options: dict[str, Any]) -> Any:
        other_options = ("redirect_uris", "confidential", "service_user", "scopes", "resources")
        if any(options[name] for name in other_options):
            raise CommandError("--document cannot be combined with other options: the document defines the client.")
        try:
            with options["document"].open("rb") as file:
                body = file.read(MAX_METADATA_BYTES + 1)
        except OSError as problem:
            raise CommandError(f"Reading the document failed: {problem.strerror}.") from None
        return documents.pin_document(options["name"], body)

    def _create_client(self, options: dict[str, Any]) -> tuple[Any, str]:
        uris, name = options["redirect_uris"], " ".join(options["name"].split())
        if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise CommandError(f"The name must have 1 to {MAX_NAME_CHARS} printable characters.")
        for uri in uris:
            if uri_problem := redirects.find_redirect_problem(uri, schemes=get_settings().native_schemes):
                raise CommandError(f"{uri!r}: {uri_problem}.")
        if uris and options["service_user"]:
            raise CommandError(
                "Use either --redirect-uri or --service-user: a service client does not request consent."
            )

        try:
            check_scopes(options["scopes"] or [])
        except ValidationError as problem:
            raise CommandError(" ".join(problem.messages)) from None

        return clients.create_client(
            name,
            redirect_uris=uris,
            confidential=options["confidential"],
            service_user=None if (name := options["service_user"]) is None else get_active_user(name),
            scopes=options["scopes"],
            resources=options["resources"],
        )

    def _find_unknown(self, options: dict[str, Any]) -> list[str]:
        declared = scopes.get_declared_scopes()
        unknown = [scope for scope in options["scopes"] or () if scope not in declared]
        return unknown + [url for url in options["resources"] or () if resource_indicators.find_resource(url) is None]
