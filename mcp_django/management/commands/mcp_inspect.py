"""Command that lists the primitives of a server and their access rules."""

from argparse import ArgumentParser
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from mcp_django.management.command_options import add_caller_options, get_command_principal
from mcp_django.management.inspection import InspectedPrimitive, inspect_server
from mcp_django.management.output import CleanCommand
from mcp_django.orm.list_size import TOKEN_BYTES, ToolListSize, advise_generic_style
from mcp_django.schema.host_rules import HostFinding
from mcp_django.wiring import get_server, list_aliases

MAX_SHOWN_FINDINGS = 5
"""Maximum number of places that the text output has for one rule of a host."""


class Command(CleanCommand):
    """Print each primitive with its requirements, source, and the user's access.

    The primitives are those of clients' lists: registered, mounted, proxied and stored ones.
    """

    help = "List the tools, resources, templates and prompts of a server, with their access rules."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_caller_options(parser, user_help="show the access of this user (default: only the requirements)")
        parser.add_argument("--server", choices=list_aliases(), help="one server's alias (default: all)")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--sizes", action="store_true", help="print the bytes of each list entry, and of the lists of the caller"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        principal = get_command_principal(options["user"], options["scopes"])
        has_user = options["user"] is not None
        chosen = [options["server"]] if options["server"] else list_aliases()
        found = {alias: inspect_server(get_server(alias), principal) for alias in chosen}

        if options["json"]:
            rows = {
                alias: [_build_row(item, has_user=has_user, has_sizes=options["sizes"]) for item in items]
                for alias, items in found.items()
            }
            self.write_json(rows, default=str)
            return

        for alias, items in found.items():
            server = get_server(alias)
            self.stdout.write(f"{alias}: {server.info.name} {server.info.version}", self.style.MIGRATE_HEADING)
            for item in items:
                size = f"  {item.size_bytes} bytes" if options["sizes"] else ""
                verdict = f"  [{item.verdict}]" if has_user else ""
                self.stdout.write(f"  {item.kind:<9}{item.key:<32} {item.requirements}{size}{verdict}")
                self.stdout.write(f"           {item.source}")
            if not items:
                self.stdout.write("  no primitives registered; write mcp_tools.py in an installed app")
            if options["sizes"]:
                self._write_totals(items)
            self._write_host_findings(items)
            self._write_advice(alias, items)

    def _write_host_findings(self, items: Sequence[InspectedPrimitive]) -> None:
        """Write the rules of hosts that tools violate, with the first places of each."""
        found: dict[str, list[HostFinding]] = {}
        for item in items:
            for finding in item.host_findings:
                found.setdefault(finding.rule.name, []).append(finding)
        for findings in found.values():
            rule = findings[0].rule
            self.stdout.write(f"  {rule.reaction} ({rule.hosts}): {len(findings)} x {rule.name}", self.style.WARNING)
            for finding in findings[:MAX_SHOWN_FINDINGS]:
                self.stdout.write(f"           {finding}")
            self.stdout.write(f"           {rule.remedy} Source: {rule.source}")

    def _write_totals(self, items: Sequence[InspectedPrimitive]) -> None:
        """Write the sizes of the lists that the caller receives."""
        for collection, group in groupby(items, key=lambda item: item.collection):
            sizes = [item.size_bytes for item in group if item.is_listed]
            separators = max(len(sizes) - 1, 0)
            size_bytes = sum(sizes) + separators
            tokens = size_bytes // TOKEN_BYTES
            self.stdout.write(
                f"  list of {collection}: {len(sizes)} entries, {size_bytes} bytes, about {tokens} tokens"
            )

    def _write_advice(self, alias: str, items: Sequence[InspectedPrimitive]) -> None:
        """Write the size of a large list of tools, and the way to reduce it."""
        listed = [item for item in items if item.collection == "tools" and item.is_listed]
        model_tools = sum(item.is_model_tool for item in listed)
        size = ToolListSize(len(listed), sum(item.size_bytes for item in listed), model_tools)
        if size.is_reducible:
            self.stdout.write(f"  {size}. {advise_generic_style(alias)}", self.style.WARNING)


def _build_row(item: InspectedPrimitive, *, has_user: bool, has_sizes: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": item.kind,
        "key": item.key,
        "takes": item.requirements,
        "source": item.source,
    }
    if item.host_findings:
        row["hosts"] = [{"rule": finding.rule.name, "problem": str(finding)} for finding in item.host_findings]
    if has_user:
        row["verdict"] = item.verdict
    return {**row, "bytes": item.size_bytes} if has_sizes else row
