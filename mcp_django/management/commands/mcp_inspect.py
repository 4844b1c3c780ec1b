"""Command that lists the primitives of a server and their access rules."""

import json
from argparse import ArgumentParser
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import BaseCommand

from mcp_django.management.command_options import add_caller_options, get_command_principal
from mcp_django.server.ports import ALLOW, HIDDEN, Principal
from mcp_django.server.primitives.base import Primitive
from mcp_django.server.server import Server
from mcp_django.wiring import get_server, list_aliases

COLLECTIONS = ("tools", "resources", "templates", "prompts")


class Command(BaseCommand):
    """Print each primitive with its requirements, source, and the user's access."""

    help = "List the tools, resources, templates and prompts of a server, with their access rules."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_caller_options(parser, user_help="show the access of this user (default: only the requirements)")
        parser.add_argument("--server", choices=list_aliases(), help="one server's alias (default: all)")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        principal = (
            get_command_principal(options["user"], options["scopes"]) if options["user"] or options["scopes"] else None
        )
        chosen = [options["server"]] if options["server"] else list_aliases()
        found = {alias: async_to_sync(_inspect)(get_server(alias), principal) for alias in chosen}

        if options["json"]:
            self.stdout.write(json.dumps(found, indent=2, ensure_ascii=False, default=str))
            return
        for alias, rows in found.items():
            server = get_server(alias)
            self.stdout.write(self.style.MIGRATE_HEADING(f"{alias}: {server.info.name} {server.info.version}"))
            for row in rows:
                verdict = f"  [{row['verdict']}]" if "verdict" in row else ""
                self.stdout.write(f"  {row['kind']:<9}{row['key']:<32} {row['takes']}{verdict}")
                self.stdout.write(f"           {row['source']}")
            if not rows:
                self.stdout.write("  no primitives registered; write mcp_tools.py in an installed app")


async def _inspect(server: Server, principal: Principal | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for collection in COLLECTIONS:
        for primitive in getattr(server.registry, collection):
            row = {
                "kind": primitive.kind,
                "key": primitive.key,
                "takes": _describe_requirements(primitive),
                "source": primitive.source,
            }
            if principal is not None:
                row["verdict"] = await _describe_access(server, principal, primitive)
            rows.append(row)
    return rows


async def _describe_access(server: Server, principal: Principal, primitive: Primitive) -> str:
    decision = await server.authorizer.decide(principal, primitive)
    if decision == ALLOW:
        return "allowed"
    return (
        "hidden: the permission is missing" if decision == HIDDEN else f"needs the scopes {' '.join(decision.scopes)}"
    )


def _describe_requirements(primitive: Primitive) -> str:
    permission = primitive.permission
    parts = []
    if permission is not None:
        named = permission if isinstance(permission, tuple | list) else [permission]
        parts.append(f"permission {', '.join(getattr(name, '__name__', str(name)) for name in named)}")
    if primitive.scopes:
        parts.append(f"scopes {' '.join(primitive.scopes)}")
    return " and ".join(parts) or "open to every authenticated caller"
