"""Command to check and use the servers in `MCP["CLIENTS"]`."""

import argparse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from mcp_django import conf
from mcp_django.client.client import Client
from mcp_django.client.errors import MAX_TEXT_LENGTH, AuthorizationNeeded, ClientError
from mcp_django.client.oauth.http import AuthorizationFailed
from mcp_django.client.oauth.loopback import login
from mcp_django.client.pool.factory import build_client
from mcp_django.client.pool.health import describe_stderr
from mcp_django.client.pool.health_check import HealthCheckResult, check_client, check_clients
from mcp_django.client.pool.pool import client_settings
from mcp_django.conf.clients import ClientSettings
from mcp_django.management.command_options import (
    get_command_principal,
    parse_tool_arguments,
    remove_protocol_members,
)
from mcp_django.management.output import CleanCommand
from mcp_django.protocol.display_text import clean_line

T = TypeVar("T")
HEADINGS = ("alias", "state", "transport", "revision", "era", "tools", "connect", "latency", "where")
RIGHT_ALIGNED = {"tools", "connect", "latency"}


class Command(CleanCommand):
    """Check all servers concurrently and list their state.

    Exit with 1 if one is unreachable.
    """

    help = "Check the servers that this project uses, list their tools, call one, or log in to a server."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--alias", action="append", dest="aliases", help="only this server; may be repeated")
        parser.add_argument("--user", help="username for servers with credentials per user")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--limit", type=float, help="seconds for each server (default: STARTUP_TIMEOUT and TIMEOUT of the setting)"
        )

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
        user = get_command_principal(options["user"], None).user if options["user"] else None
        try:
            match options["action"]:
                case "tools":
                    self._list_tools(options, user)
                case "call":
                    self._call_tool(options, user)
                case "login":
                    self._log_in(options, user)
                case _:
                    self._check(options, user)
        except ImproperlyConfigured as problem:
            raise CommandError(str(problem)) from None

    def _check(self, options: Mapping[str, Any], user: Any) -> None:
        clients = conf.get_settings().clients
        aliases = options["aliases"] or list(clients)
        for alias in aliases:
            client_settings(alias)
        results = async_to_sync(check_clients)(aliases, user=user, timeout=options["limit"])

        if options["json"]:
            self.write_json([_build_json(result) for result in results])
        elif not results:
            self.stdout.write('MCP["CLIENTS"] is empty')
        else:
            self._write_table([_build_row(result) for result in results])
            for result in results:
                if not result.reached:
                    self.stderr.write(f"{result.alias}: {_describe_failure(result)}")
                    if result.url is not None:
                        self.stderr.write(
                            f"{result.alias}: authorize it at {result.url}, or with: mcp_clients login {result.alias}"
                        )
        if not all(result.reached for result in results):
            raise SystemExit(1)

    def _write_table(self, rows: list[dict[str, str]]) -> None:
        widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in HEADINGS}

        def line(row: Mapping[str, str]) -> str:
            cells = (
                row[name].rjust(widths[name]) if name in RIGHT_ALIGNED else row[name].ljust(widths[name])
                for name in widths
            )
            return "  ".join(cells).rstrip()

        self.stdout.write(line({name: name for name in HEADINGS}), self.style.MIGRATE_HEADING)
        for row in rows:
            style = self.style.SUCCESS if row["state"] == "ok" else self.style.ERROR
            self.stdout.write(line(row), style)

    def _list_tools(self, options: Mapping[str, Any], user: Any) -> None:
        result = async_to_sync(check_client)(options["alias"], user=user, timeout=options["limit"])
        if not result.reached:
            raise CommandError(_describe_failure(result))
        if options["json"]:
            self.write_json([_dump(tool) for tool in result.tools])
            return

        for tool in result.tools:
            self.stdout.write(_sanitize_line(tool.name), self.style.MIGRATE_HEADING)
            if description := _sanitize_line((tool.description or tool.title or "").strip().partition("\n")[0]):
                self.stdout.write(f"  {description}")
            for name, schema in (tool.input_schema.get("properties") or {}).items():
                required = "" if name in (tool.input_schema.get("required") or ()) else ", optional"
                kind = schema.get("type", "any") if isinstance(schema, dict) else "any"
                self.stdout.write(f"    {_sanitize_line(str(name))} ({_sanitize_line(str(kind))}{required})")

    def _call_tool(self, options: Mapping[str, Any], user: Any) -> None:
        arguments = parse_tool_arguments(options["arguments"])

        async def call(client: Client) -> Any:
            return await client.call_tool(options["tool"], arguments, on_progress=self._on_progress)

        result = self._run_with_client(options["alias"], user, call)
        self.write_json(remove_protocol_members(_dump(result)))
        if result.is_error:
            raise SystemExit(1)

    def _run_with_client(self, alias: str, user: Any, function: Callable[[Client], Awaitable[T]]) -> T:
        async def run() -> T:
            async with build_client(client_settings(alias), user=user) as client:
                return await function(client)

        try:
            return async_to_sync(run)()
        except AuthorizationNeeded as needed:
            where = f" at {needed.url}, or" if needed.url else ""
            raise CommandError(f"{needed} Authorize it{where} with: mcp_clients login {alias}") from None
        except ClientError as problem:
            raise CommandError(_describe_error(problem, client_settings(alias))) from None
        except KeyboardInterrupt:
            raise CommandError("Stopped", returncode=130) from None

    def _log_in(self, options: Mapping[str, Any], user: Any) -> None:
        settings = client_settings(options["alias"])
        browser: dict[str, Any] = {"open_url": None} if options["no_browser"] else {}
        try:
            async_to_sync(login)(settings, user, write=self.stdout.write, port=options["port"], **browser)
        except (AuthorizationFailed, ClientError, ValueError) as problem:
            raise CommandError(_sanitize_line(str(problem))) from None
        except KeyboardInterrupt:
            raise CommandError("Stopped", returncode=130) from None
        self.stdout.write(f"{settings.alias} is authorized now", self.style.SUCCESS)

    def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Write progress to stderr; stdout contains only the result."""
        of = f" of {total:g}" if total is not None else ""
        self.stderr.write(f"… {progress:g}{of} {_sanitize_line(message or '')}".rstrip(), style_func=str)


def _build_row(result: HealthCheckResult) -> dict[str, str]:
    settings = client_settings(result.alias)
    return {
        "alias": result.alias,
        "state": "ok" if result.reached else "down",
        "transport": settings.kind,
        "revision": result.protocol_version,
        "era": result.era,
        "tools": str(len(result.tools)) if result.reached else "",
        "connect": _format_milliseconds(result.connecting),
        "latency": _format_milliseconds(result.latency),
        "where": settings.display_location,
    }


def _build_json(result: HealthCheckResult) -> dict[str, Any]:
    settings = client_settings(result.alias)
    output = {**asdict(result), "tools": len(result.tools) if result.reached else None}
    return {"transport": settings.kind, "where": settings.display_location, **output}


def _describe_failure(result: HealthCheckResult) -> str:
    return _join_failure(result.error, result.error_text, result.stderr)


def _describe_error(problem: ClientError, settings: ClientSettings) -> str:
    return _join_failure(type(problem).__name__, str(problem), describe_stderr(problem, settings))


def _join_failure(name: str, text: str, stderr: str) -> str:
    """Return a failure with the last lines of the program's standard error below it."""
    lines = ["The last lines of its standard error:", *map(_sanitize_line, stderr.splitlines())] if stderr else []
    return "\n  ".join([f"{name}: {_sanitize_line(text)}", *lines])


def _format_milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.0f} ms"


def _dump(value: Any) -> dict[str, Any]:
    output: dict[str, Any] = value.model_dump(by_alias=True, mode="json", exclude_none=True)
    return output


def _sanitize_line(text: str) -> str:
    """Return another server's text in one line that is safe for a terminal."""
    return clean_line(text, MAX_TEXT_LENGTH)
