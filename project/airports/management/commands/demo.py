"""Prepare the demo and serve it, as `make demo` does."""

import asyncio
import secrets
import socket
import threading
from argparse import ArgumentParser
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse
from django.utils import timezone

from mcp_django.models import PersonalAccessToken, ServiceAccount
from mcp_django.models.service_account import save_account
from project.airports.bots import run_bots
from project.airports.models import Airport
from project.airports.views import QUESTIONS, interpreter, other_ways

HOST = "127.0.0.1"
BOTS_NAME = "bots"
ROOM = "admin:mcp_control_room_controlroom_changelist"
EXAMPLE_CALL = """mcp_call nearest_airports '{"latitude": 46.5, "longitude": 8.0}'"""


class Command(BaseCommand):
    """Migrate, load the airports if there are none, make the demo user, and run Daphne until Ctrl-C.

    With `--prepare`, stop before Daphne: other processes serve.
    """

    help = "Prepares the demo (tables, airports, a superuser) and serves it on loopback."
    requires_system_checks = ()  # `migrate` runs them, once

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the port, and the option to prepare only."""
        parser.add_argument("--port", type=int, default=8000, help="Port on 127.0.0.1 (default: 8000).")
        parser.add_argument("--busy", action="store_true", help="Let bots call, fail, ask and wait.")
        parser.add_argument("--prepare", action="store_true", help="Prepare for other processes that serve it.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it in the order in which a later step needs an earlier one; the port comes first, as it fails most."""
        port: int = options["port"]
        site = f"http://{HOST}:{port}"
        if not options["prepare"]:
            check_port(port)
        check_origin(site)
        call_command("migrate", verbosity=0, interactive=False)
        if not Airport.objects.exists():
            self.stdout.write("Loading 28,000 airports, once…")
            call_command("loadairports", verbosity=0)
        username, password = demo_login(Path(settings.DEMO_DIR) / "demo_password")
        if options["prepare"]:
            self.welcome(site, username, password)
            return
        # Imported only now: Daphne installs its event loop when it is imported, which no other command should suffer.
        from daphne.endpoints import build_endpoint_description_strings
        from daphne.server import Server

        from project.asgi import application

        def announce() -> None:
            self.welcome(site, username, password)
            if options["busy"]:
                start_bots(f"{site}{reverse('mcp_django:default')}", username)
                self.write_section("Watch the bots", f"{site}{reverse(ROOM)}")
            self.stdout.write("\nCtrl-C stops it.")
            self.stdout.flush()

        Server(
            application=application,
            endpoints=build_endpoint_description_strings(host=HOST, port=port),
            ready_callable=announce,
        ).run()
        self.stdout.write("Stopped.")

    def welcome(self, site: str, username: str, password: str) -> None:
        """Write the addresses, the ways to connect, and first questions."""
        endpoint = f"{site}{reverse('mcp_django:default')}"
        for label, value in [
            ("Home page", f"{site}{reverse('home')}"),
            ("MCP endpoint", endpoint),
            *other_ways(endpoint),
            ("Admin", f"{site}{reverse('admin:index')}   user {username}, password {password}"),
        ]:
            self.stdout.write(f"  {label:<13} {self.style.SUCCESS(value)}")

        self.write_section("Connect Claude Code", f"claude mcp add --transport http airports {endpoint}")
        if settings.DEMO_AUTH == "oauth":
            self.stdout.write(
                "  The endpoint is protected: the client opens a browser. Log in as above, and choose its rights.\n"
                f"  Clients can be disconnected at {site}{reverse('oauth2_provider:connections')}"
            )
        self.write_section("Then ask", *QUESTIONS)
        self.write_section("See it work without a client", f"{interpreter()} manage.py {EXAMPLE_CALL}")

    def write_section(self, title: str, *lines: str) -> None:
        """Write a heading and indented lines below it."""
        self.stdout.write(f"\n  {title}:")
        for line in lines:
            self.stdout.write(f"    {self.style.SUCCESS(line)}")


def start_bots(endpoint: str, username: str) -> None:
    """Run the bots in a thread that ends with the process. Where the endpoint is protected, they use their token."""
    user = prepare_service_account(get_user_model().objects.get(username=username)).user
    scopes, expires = list(settings.MCP["SCOPES"]), timezone.now() + timedelta(days=1)
    _, issued = PersonalAccessToken.issue(user=user, name="bots", scopes=scopes, expires=expires)
    token = issued if "token" in settings.MCP["AUTH"] else None
    threading.Thread(target=asyncio.run, args=[run_bots(endpoint, token)], name="bots", daemon=True).start()


def prepare_service_account(owner: Any) -> ServiceAccount:
    """Return the service account of the bots. Make it, with all rights, if it is missing."""
    account = ServiceAccount.objects.filter(user__username=BOTS_NAME).first()
    if account is None:
        account = ServiceAccount(owner=owner, description="The bots of make demo ARGS=--busy")
        save_account(account, get_user_model()(username=BOTS_NAME, is_superuser=True))
    return account


def check_port(port: int) -> None:
    """Raise CommandError when the port cannot be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as problem:
            raise CommandError(f"Port {port} cannot be used ({problem}); choose another with --port.") from None


def check_origin(site: str) -> None:
    """Raise CommandError when an authorization server would name itself by another address than the one served."""
    if settings.DEMO_AUTH == "oauth" and site != settings.DEMO_ORIGIN:
        raise CommandError(
            f"Clients would be sent to {settings.DEMO_ORIGIN}, and {site} is served; say DEMO_ORIGIN={site}"
        )


def demo_login(path: Path) -> tuple[str, str]:
    """Make the superuser of the demo, or reset it, and return its name and password.

    The password is random, made once, and kept in a file of the checkout that only its owner reads.
    """
    username: str = settings.MCP["LOCAL_USER"]
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(9))
    password = path.read_text()
    user, _ = get_user_model().objects.get_or_create(username=username)
    user.is_staff = user.is_superuser = user.is_active = True
    if not user.check_password(password):
        user.set_password(password)
    user.save()
    return username, password
