"""Size of the list of tools, and the advice to share tools among models.

A client gives the whole list to its model, mostly in each conversation. The tools of a dozen models take tens of
thousands of tokens. Generic tools take a few thousands for any number of models.
"""

from collections.abc import Iterable
from typing import NamedTuple

from mcp_django.orm.declaration.base import TOOL_ACTIONS
from mcp_django.protocol import jsonrpc
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.registry import Registry

MIN_LARGE_TOOLS = 60
"""Number of tools from which on a list is large."""
TOKEN_BYTES = 4
"""Approximate number of bytes of JSON in one token of a language model."""


class ToolListSize(NamedTuple):
    """Size of a list: the number of its tools, and the bytes of their entries."""

    tools: int
    bytes: int
    model_tools: int = 0
    """Number of tools of single models, which generic tools could replace."""

    @property
    def tokens(self) -> int:
        """Return the approximate number of tokens of a language model."""
        return self.bytes // TOKEN_BYTES

    @property
    def is_reducible(self) -> bool:
        """Return True if the list is large, and most of it is tools of single models."""
        return self.tools >= MIN_LARGE_TOOLS and self.model_tools * 2 >= self.tools

    def __str__(self) -> str:
        return f"{self.tools:,} tools, {self.bytes:,} bytes, about {self.tokens:,} tokens"


def measure_registered_tools(registry: Registry) -> ToolListSize:
    """Return the size of the list for a caller who may use all registered tools."""
    tools = [tool for tool in registry.tools if registry.can_list(tool)]
    sizes = [len(jsonrpc.dumps(tool.wire)) for tool in tools]
    return ToolListSize(len(tools), sum(sizes), count_model_tools(tools))


def count_model_tools(tools: Iterable[object]) -> int:
    """Return the number of tools of single models that generic tools could replace."""
    return sum(isinstance(tool, Tool) and tool.metadata.get("verb") in TOOL_ACTIONS for tool in tools)


def advise_generic_style(alias: str) -> str:
    """Return the advice for a large list of a server."""
    return (
        f'MCP["SERVERS"]["{alias}"]["ORM_STYLE"] = "generic" lists one tool for each operation of all models, in a '
        "fraction of the bytes: docs/expose/model-resources.md."
    )
