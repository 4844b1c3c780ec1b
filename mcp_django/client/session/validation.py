"""Validation of answers: entries of lists against the revision, structured content against output schemas."""

import logging
from collections.abc import Iterable
from typing import Any

import mcp_types as types
from mcp_types.methods import validate_server_result

from mcp_django.client.errors import InvalidAnswer
from mcp_django.schema import DeclarationError
from mcp_django.schema.custom_schema import check_schema
from mcp_django.schema.validation.validation import Checker

logger = logging.getLogger("mcp_django.client")

MEMBERS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""Methods that list, and the member of a page that has the entries."""
_REST = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What else a page needs to be one, in some revision."""


class Pages:
    """The pages of one connection. What is left out is warned of once for each list."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._told: set[str] = set()

    def cleaned(self, method: str, version: str, page: dict[str, Any]) -> dict[str, Any]:
        """The page of a list without the entries that are not what the revision says."""
        member = MEMBERS[method]
        entries = page.get(member)
        if type(entries) is not list or _fits(method, version, entries):
            return page
        kept = [entry for entry in entries if _fits(method, version, [entry])]
        if method not in self._told:
            self._told.add(method)
            said = "%s answers %s with entries that the protocol does not allow; %d of %d are left out"
            logger.warning(said, self._server, method, len(entries) - len(kept), len(entries))
        return {**page, member: kept}


def _fits(method: str, version: str, entries: list[Any]) -> bool:
    try:
        validate_server_result(method, version, {**_REST, MEMBERS[method]: entries})
    except ValueError:
        return False
    return True


class Structured:
    """The output schemas of the tools that were listed. Each is compiled at the first result that is checked by it."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, Any]] = {}
        self._checkers: dict[str, Checker | None] = {}

    def learn(self, tools: Iterable[types.Tool]) -> None:
        """Take in the whole list of tools."""
        known = {tool.name: tool.output_schema for tool in tools if tool.output_schema is not None}
        self._checkers = {name: checker for name, checker in self._checkers.items() if self._same(name, known)}
        self._schemas = known

    def check(self, name: str, result: types.CallToolResult) -> None:
        """Raises InvalidAnswer for structured content that does not fit the schema, or is not there."""
        if result.is_error or name not in self._schemas:
            return
        if name not in self._checkers:
            self._checkers[name] = _compiled(self._schemas[name])
        checker = self._checkers[name]
        if checker is not None and (problems := checker.problems(result.structured_content, "property")):
            raise InvalidAnswer(f"The result of a tool does not fit its outputSchema: {problems}")

    def _same(self, name: str, known: dict[str, dict[str, Any]]) -> bool:
        return name in known and known[name] == self._schemas.get(name)


def _compiled(schema: dict[str, Any]) -> Checker | None:
    """A checker, unless the schema is one that is not compiled for a stranger: too large, or not valid."""
    try:
        return check_schema(schema, "outputSchema")
    except DeclarationError:
        logger.warning("The results of an MCP server's tool are not checked: its outputSchema cannot be used")
        return None
