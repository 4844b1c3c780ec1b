"""Whether the structured content of results is what the server said of its tools (clients SHOULD check it)."""

import logging
from collections.abc import Iterable
from typing import Any

import mcp_types as types

from ..schema import DeclarationError
from ..schema.handwritten import check_schema
from ..schema.validation import Checker
from .errors import InvalidAnswer

logger = logging.getLogger("mcp_django.client")


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
