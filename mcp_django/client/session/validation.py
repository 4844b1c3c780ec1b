"""Validation of responses: list entries and structured content."""

from collections.abc import Iterable
from typing import Any

import mcp_types as types
from mcp_types.methods import validate_server_result

from mcp_django.client.errors import InvalidAnswer
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import DeclarationError
from mcp_django.schema.custom_schema import check_schema
from mcp_django.schema.validation.validation import SchemaChecker

logger = get_logger("mcp_django.client")

LIST_MEMBERS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""List methods, and the member of a page that contains the entries."""
_REQUIRED_PAGE_MEMBERS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Other members that a page requires in some revision."""


class PageValidator:
    """Validator of list pages of one connection. It logs one warning for each list."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._warned_methods: set[str] = set()

    def remove_invalid_entries(self, method: str, version: str, page: dict[str, Any]) -> dict[str, Any]:
        """Return the page without entries that violate the revision."""
        member = LIST_MEMBERS[method]
        entries = page.get(member)
        if type(entries) is not list or _is_valid(method, version, entries):
            return page
        valid_entries = [entry for entry in entries if _is_valid(method, version, [entry])]
        if method not in self._warned_methods:
            self._warned_methods.add(method)
            message = "Invalid list entries: %s, %s: ignored %d of %d"
            logger.warning(message, self._server, method, len(entries) - len(valid_entries), len(entries))
        return {**page, member: valid_entries}


def _is_valid(method: str, version: str, entries: list[Any]) -> bool:
    try:
        validate_server_result(method, version, {**_REQUIRED_PAGE_MEMBERS, LIST_MEMBERS[method]: entries})
    except ValueError:
        return False
    return True


class OutputValidator:
    """Output schemas of the listed tools, each compiled at its first result."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, Any]] = {}
        self._checkers: dict[str, SchemaChecker | None] = {}

    def set_tools(self, tools: Iterable[types.Tool]) -> None:
        """Replace the schemas by those of the complete tool list."""
        schemas = {tool.name: tool.output_schema for tool in tools if tool.output_schema is not None}
        self._checkers = {
            name: checker for name, checker in self._checkers.items() if self._is_unchanged(name, schemas)
        }
        self._schemas = schemas

    def check(self, name: str, result: types.CallToolResult) -> None:
        """Check structured content against the tool's schema.

        Raises InvalidAnswer if it does not match or is missing.
        """
        if result.is_error or name not in self._schemas:
            return
        if name not in self._checkers:
            self._checkers[name] = _compile_checker(self._schemas[name])
        checker = self._checkers[name]
        if checker is not None and (problems := checker.describe_problems(result.structured_content, "property")):
            raise InvalidAnswer(f"The tool result does not match its outputSchema: {problems}")

    def _is_unchanged(self, name: str, schemas: dict[str, dict[str, Any]]) -> bool:
        return name in schemas and schemas[name] == self._schemas.get(name)


def _compile_checker(schema: dict[str, Any]) -> SchemaChecker | None:
    """Return a checker.

    Returns None for an invalid or oversized schema, which is not compiled.
    """
    try:
        return check_schema(schema, "outputSchema")
    except DeclarationError:
        logger.warning("Unusable outputSchema of an MCP server's tool: its results are not validated")
        return None
