"""Command to check and use the servers in `MCP["CLIENTS"]`."""

import argparse
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from mcp_django import conf
from mcp_django.client.client import Client
from mcp_django.client.errors import AuthorizationNeeded, ClientError, legible
from mcp_django.client.oauth.http import AuthorizationFailed
from mcp_django.client.oauth.loopback import login
from mcp_django.client.pool.factory import build_client
from mcp_django.client.pool.health_check import LIMIT, Checked, check_client, check_clients
from mcp_django.client.pool.pool import client_settings
from mcp_django.management.user_option import acting_as

T = TypeVar("T")
HEADINGS = ("alias", "state", "transport", "revision", "era", "tools", "connect", "latency", "where")
RIGHT = {"tools", "connect", "latency"}


class Command(BaseCommand):
    """Check all servers concurrently and list their state.

    Exit with 1 if one is unreachable.
    """

    help = "Check the servers that this project uses, list their tools, call one, or log in to a server."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--alias", action="append", dest="aliases", help="only this server; may be repeated")
        parser.add_argument("--user", help="username for servers with credentials per user")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each server (default: %(default)g)")

        actions = parser.add_subparsers(dest="action", metavar="check | tools | call | login", title="actions")
        check = actions.add_parser("check", help="check the servers (default action)")
        check.add_argument("aliases", nargs="*", metavar="ALIAS", default=argparse.SUPPRESS, help="default: all")
        tools = actions.add_parser("tools", help="list the tools of a server")
        call = actions.add_parser("call", help="call a tool of a server, and print its result as JSON")
        log_in = actions.add_parser("login", help="authorize a server in a browser (AUTH of the TYPE oauth)")
        for one in (tools, call, log_in):
            one.add_argument("alias", metavar="ALIAS")
        call.add_argument("tool", metavar="TOOL")
        call.add_argument("arguments", nargs="?", default="{}", metavar="JSON", help="an object (default: {})")
        log_in.add_argument("--port", type=int, default=0, help="port of this machine for the redirect (default: any)")
        log_in.add_argument("--no-browser", action="store_true", help="only print the URL")
        for one in (check, tools, call, log_in):
            one.add_argument("--user", default=argparse.SUPPRESS, help="username for servers with credentials per user")
            one.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        user = acting_as(options["user"], None).user if options["user"] else None
        try:
            match options["action"]:
                case "tools":
                    self._list(options, user)
                case "call":
                    self._call(options, user)
                case "login":
                    self._log_in(options, user)
                case _:
                    self._check(options, user)
        except ImproperlyConfigured as problem:
            raise CommandError(str(problem)) from None

    def _check(self, options: Mapping[str, Any], user: Any) -> None:
        known = conf.get_settings().clients
        aliases = options["aliases"] or list(known)
        for alias in aliases:
            client_settings(alias)
        found = async_to_sync(check_clients)(aliases, user=user, limit=options["limit"])

        if options["json"]:
            self._print([_as_json(one) for one in found])
        elif not found:
            self.stdout.write('MCP["CLIENTS"] is empty')
        else:
            self._table([_row(one) for one in found])
            for one in found:
                if not one.reached:
                    self.stderr.write(f"{one.alias}: {one.error}: {_line(one.error_text)}")
                    if one.url is not None:
                        self.stderr.write(
                            f"{one.alias}: authorize it at {one.url}, or with: mcp_clients login {one.alias}"
                        )
        if not all(one.reached for one in found):
            raise SystemExit(1)

    def _table(self, rows: list[dict[str, str]]) -> None:
        widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in HEADINGS}

        def line(row: Mapping[str, str]) -> str:
            cells = (
                row[name].rjust(widths[name]) if name in RIGHT else row[name].ljust(widths[name]) for name in widths
            )
            return "  ".join(cells).rstrip()

        self.stdout.write(self.style.MIGRATE_HEADING(line({name: name for name in HEADINGS})))
        for row in rows:
            style = self.style.SUCCESS if row["state"] == "ok" else self.style.ERROR
            self.stdout.write(style(line(row)))

    def _list(self, options: Mapping[str, Any], user: Any) -> None:
        found = async_to_sync(check_client)(options["alias"], user=user, limit=options["limit"])
        if not found.reached:
            raise CommandError(f"{found.error}: {_line(found.error_text)}")
        if options["json"]:
            self._print([_wire(tool) for tool in found.tools])
            return

        for tool in found.tools:
            self.stdout.write(self.style.MIGRATE_HEADING(_line(tool.name)))
            if description := _line((tool.description or tool.title or "").strip().partition("\n")[0]):
                self.stdout.write(f"  {description}")
            for name, what in (tool.input_schema.get("properties") or {}).items():
                required = "" if name in (tool.input_schema.get("required") or ()) else ", optional"
                kind = what.get("type", "any") if isinstance(what, dict) else "any"
                self.stdout.write(f"    {_line(str(name))} ({_line(str(kind))}{required})")

    def _call(self, options: Mapping[str, Any], user: Any) -> None:
        try:
            arguments = json.loads(options["arguments"])
        except ValueError as problem:
            raise CommandError(f"The arguments are not valid JSON: {problem}") from None
        if not isinstance(arguments, dict):
            raise CommandError("The arguments must be a JSON object")

        async def call(client: Client) -> Any:
            return await client.call_tool(options["tool"], arguments, on_progress=self._tell)

        result = self._with(options["alias"], user, call)
        shown = {key: value for key, value in _wire(result).items() if key not in ("resultType", "_meta")}
        self._print(shown)
        if result.is_error:
            raise SystemExit(1)

    def _with(self, alias: str, user: Any, work: Callable[[Client], Awaitable[T]]) -> T:
        async def run() -> T:
            async with build_client(client_settings(alias), user=user) as client:
                return await work(client)

        try:
            return async_to_sync(run)()
        except AuthorizationNeeded as needed:
            where = f" at {needed.url}, or" if needed.url else ""
            raise CommandError(f"{needed} Authorize it{where} with: mcp_clients login {alias}") from None
        except ClientError as problem:
            raise CommandError(f"{type(problem).__name__}: {_line(str(problem))}") from None
        except KeyboardInterrupt:
            raise CommandError("Stopped", returncode=130) from None

    def _log_in(self, options: Mapping[str, Any], user: Any) -> None:
        settings = client_settings(options["alias"])
        browser: dict[str, Any] = {"open_url": None} if options["no_browser"] else {}
        try:
            async_to_sync(login)(settings, user, say=self.stdout.write, port=options["port"], **browser)
        except (AuthorizationFailed, ClientError, ValueError) as problem:
            raise CommandError(_line(str(problem))) from None
        except KeyboardInterrupt:
            raise CommandError("Stopped", returncode=130) from None
        self.stdout.write(self.style.SUCCESS(f"{settings.alias} is authorized now"))

    def _tell(self, progress: float, total: float | None, message: str | None) -> None:
        """Write progress to stderr; stdout contains only the result."""
        of = f" of {total:g}" if total is not None else ""
        self.stderr.write(f"… {progress:g}{of} {_line(message or '')}".rstrip(), style_func=str)

    def _print(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, indent=2, ensure_ascii=False))


def _row(found: Checked) -> dict[str, str]:
    settings = client_settings(found.alias)
    return {
        "alias": found.alias,
        "state": "ok" if found.reached else "down",
        "transport": settings.kind,
        "revision": found.protocol_version,
        "era": found.era,
        "tools": str(len(found.tools)) if found.reached else "",
        "connect": _milliseconds(found.connecting),
        "latency": _milliseconds(found.latency),
        "where": settings.place,
    }


def _as_json(found: Checked) -> dict[str, Any]:
    settings = client_settings(found.alias)
    shown = {**asdict(found), "tools": len(found.tools) if found.reached else None}
    return {"transport": settings.kind, "where": settings.place, **shown}


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.0f} ms"


def _wire(value: Any) -> dict[str, Any]:
    shown: dict[str, Any] = value.model_dump(by_alias=True, mode="json", exclude_none=True)
    return shown


def _line(text: str) -> str:
    """Return another server's text in one line that is safe for a terminal."""
    return " ".join(legible(text).split())
