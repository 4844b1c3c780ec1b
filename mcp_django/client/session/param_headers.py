"""Request headers that mirror tool arguments.

Source: 2026-07-28, basic/transports, custom headers. The mirrored arguments are annotated in a tool's input schema, so
they are known for listed tools only.
"""

from collections.abc import Mapping
from typing import Any

from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.client")


class ParamHeaders:
    """Mirrored arguments of the listed tools, on one connection of the stateless era."""

    def __init__(self) -> None:
        self._params_by_tool: dict[str, dict[tuple[str, ...], str]] = {}

    def update(self, page: dict[str, Any]) -> dict[str, Any]:
        """Store the annotations of a page of `tools/list`.

        Returns the page without invalid tools. Tools with annotations that the specification forbids are removed.
        """
        valid_tools = []
        for tool in page["tools"]:
            name, schema = tool["name"], tool["inputSchema"]
            self._params_by_tool.pop(name, None)
            if find_invalid_x_mcp_header(schema) is not None:
                logger.warning("Ignored a tool of an MCP server: its schema has invalid x-mcp-header annotations")
                continue
            if mirrored := x_mcp_header_map(schema):
                self._params_by_tool[name] = mirrored
            valid_tools.append(tool)
        return page if len(valid_tools) == len(page["tools"]) else {**page, "tools": valid_tools}

    def build_headers(self, params: Mapping[str, Any]) -> dict[str, str]:
        """Build the headers of a tool call with these parameters."""
        mirrored = self._params_by_tool.get(params["name"])
        return mcp_param_headers(mirrored, params.get("arguments") or {}) if mirrored else {}
