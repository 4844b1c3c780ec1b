"""Request headers that mirror tool arguments.

Source: 2026-07-28, basic/transports, custom headers. The mirrored arguments are annotated in a tool's input schema, so
they are known for listed tools only.
"""

import logging
from collections.abc import Mapping
from typing import Any

from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

logger = logging.getLogger("mcp_django.client")


class Mirrors:
    """Mirrored arguments of the listed tools, on one connection of the stateless era."""

    def __init__(self) -> None:
        self._by_tool: dict[str, dict[tuple[str, ...], str]] = {}

    def learn(self, page: dict[str, Any]) -> dict[str, Any]:
        """Store the annotations of a page of `tools/list`.

        Returns the page without invalid tools. Tools with annotations that the specification forbids are removed.
        """
        kept = []
        for tool in page["tools"]:
            name, schema = tool["name"], tool["inputSchema"]
            self._by_tool.pop(name, None)
            if find_invalid_x_mcp_header(schema) is not None:
                logger.warning("Ignored a tool of an MCP server: its schema has invalid x-mcp-header annotations")
                continue
            if mirrored := x_mcp_header_map(schema):
                self._by_tool[name] = mirrored
            kept.append(tool)
        return page if len(kept) == len(page["tools"]) else {**page, "tools": kept}

    def headers(self, params: Mapping[str, Any]) -> dict[str, str]:
        """Build the headers of a tool call with these parameters."""
        mirrored = self._by_tool.get(params["name"])
        return mcp_param_headers(mirrored, params.get("arguments") or {}) if mirrored else {}
