"""Command that calls one tool from the shell."""

import json
from argparse import ArgumentParser
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.core.management.base import CommandError

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.management.command_options import (
    add_caller_options,
    add_server_option,
    get_command_principal,
    parse_tool_arguments,
    remove_protocol_members,
)
from mcp_django.management.inspection import ALLOWED, explain_denied_tool
from mcp_django.management.output import CleanCommand
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError
from mcp_django.server.primitives.decorators import describe_close_match
from mcp_django.server.primitives.registry import find_problem
from mcp_django.server.server import Server
from mcp_django.transports.inprocess.client import InProcessClient
from mcp_django.transports.inprocess.profile import ELICITATION, InProcessProfile
from mcp_django.wiring import get_server


class Command(CleanCommand):
    """Run a tool in this process and print its result as JSON.

    The call passes the same checks and permissions as a client's call. Elicitation uses the terminal. A tool that runs
    as a task only is waited for. The exit code is 1 if the tool fails.
    """

    help = 'Call an MCP tool: mcp_call search_airports \'{"query": "Oslo"}\' --user alice'

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tool", help="the tool's name")
        parser.add_argument("arguments", nargs="?", default="{}", help="its arguments, a JSON object (default: {})")
        add_caller_options(parser, user_help="username to act as, with this user's permissions")
        add_server_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        arguments = parse_tool_arguments(options["arguments"])
        server = get_server(options["server"])
        principal = get_command_principal(options["user"], options["scopes"])
        client = InProcessClient(
            server,
            principal,
            InProcessProfile(capabilities=ELICITATION),
            respond=self._respond_to_server,
            on_notification=self._on_notification,
        )
        try:
            result = async_to_sync(client.call_tool)(options["tool"], arguments)
        except MCPError as problem:
            unknown = problem.message.startswith("Unknown tool")
            hint = _explain_unknown_tool(server, principal, options["tool"]) if unknown else ""
            raise CommandError(f"{problem.message} ({problem.code}){hint}") from None
        except KeyboardInterrupt:
            client.cancel()
            raise CommandError("Stopped", returncode=130) from None

        self.write_json(remove_protocol_members(result))
        if result.get("isError"):
            raise SystemExit(1)

    def _on_notification(self, method: str, params: dict[str, Any]) -> None:
        """Write progress and log messages to stderr; stdout contains only the result."""
        if method == "notifications/progress":
            of = f" of {params['total']:g}" if "total" in params else ""
            self._write_message(f"… {params['progress']:g}{of} {params.get('message', '')}".rstrip())
        elif method == "notifications/message":
            self._write_message(f"{params['level']}: {params['data']}")

    def _write_message(self, text: str) -> None:
        self.stderr.write(text, style_func=str)  # without Django's style for errors

    async def _respond_to_server(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return an ElicitResult. Runs on the main thread, where Ctrl-C arrives."""
        return await sync_to_async(self._elicit, thread_sensitive=True)(request["params"])

    def _elicit(self, params: dict[str, Any]) -> dict[str, Any]:
        self._write_message(params["message"])
        if "url" in params:
            self._write_message(params["url"])
            return {"action": self._ask_consent("Opened? [y/N]")}
        if not params["requestedSchema"]["properties"]:
            return {"action": self._ask_consent("Agreed? [y/N]")}

        content: dict[str, Any] = {}
        for name, field in params["requestedSchema"]["properties"].items():
            typed = self._ask(f"{field.get('title', name)} ({_describe_input(field)}; ! to decline):")
            if typed == "!":
                return {"action": "decline"}
            if typed:
                content[name] = _parse_value(typed, field)
            elif "default" in field:
                content[name] = field["default"]
        return {"action": "accept", "content": content}

    def _ask_consent(self, question: str) -> str:
        return "accept" if self._ask(question).lower() in ("y", "yes") else "decline"

    def _ask(self, question: str) -> str:
        try:
            return self.ask(question)
        except EOFError:
            raise CommandError("The tool requested input, but stdin ended") from None


def _explain_unknown_tool(server: Server, principal: DjangoPrincipal, name: str) -> str:
    """Return the reason why a tool is unknown to the caller, or ""."""
    reason = explain_denied_tool(server, principal, name)
    if reason is not None and reason != ALLOWED:
        return f". The tool exists, but is not available to this caller: {reason}"

    problem = find_problem(server.registry, name)
    if problem is not None:
        return f". It could not be registered: {problem}"
    return describe_close_match(name, [tool.name for tool in server.registry.tools])


def _describe_input(field: dict[str, Any]) -> str:
    """Describe the accepted input of a field."""
    choices = field.get("enum") or [choice["const"] for choice in field.get("oneOf", ())]
    kind = " | ".join(map(str, choices)) or field.get("format") or field.get("type", "string")
    return f"{kind}; empty for {json.dumps(field['default'])}" if "default" in field else str(kind)


def _parse_value(typed: str, field: dict[str, Any]) -> Any:
    if field.get("type") == "string":
        return typed
    if field.get("type") == "boolean" and typed.lower() in ("y", "yes", "n", "no"):
        return typed.lower() in ("y", "yes")
    try:
        return jsonrpc.loads_exactly(typed)
    except ValueError:
        return typed
