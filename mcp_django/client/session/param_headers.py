"""Arguments that are mirrored into request headers (2026-07-28, basic/transports, custom headers).

What is mirrored stands in a tool's input schema, so it is known of the tools that were listed.
"""

import logging
from collections.abc import Mapping
from typing import Any

from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

logger = logging.getLogger("mcp_django.client")


class Mirrors:
    """Which arguments of which tools are mirrored, on one connection of the stateless era."""

    def __init__(self) -> None:
        self._by_tool: dict[str, dict[tuple[str, ...], str]] = {}

    def learn(self, page: dict[str, Any]) -> dict[str, Any]:
        """Take in a page of `tools/list`; the page without the tools whose annotations the specification forbids."""
        kept = []
        for tool in page["tools"]:
            name, schema = tool["name"], tool["inputSchema"]
            self._by_tool.pop(name, None)
            if find_invalid_x_mcp_header(schema) is not None:
                logger.warning("A tool of an MCP server is left out: its schema mirrors arguments in a wrong way")
                continue
            if mirrored := x_mcp_header_map(schema):
                self._by_tool[name] = mirrored
            kept.append(tool)
        return page if len(kept) == len(page["tools"]) else {**page, "tools": kept}

    def headers(self, params: Mapping[str, Any]) -> dict[str, str]:
        """The headers of a call with these parameters."""
        mirrored = self._by_tool.get(params["name"])
        return mcp_param_headers(mirrored, params.get("arguments") or {}) if mirrored else {}
