"""Builders of a ModelToolset's tools: each takes a toolset and returns a Tool.

    TOOL_BUILDERS["list"](toolset) -> Tool

Projects add tools of their own as methods marked with `@tool` in the toolset's class.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mcp_django.orm.tools.aggregate import build as build_aggregate
from mcp_django.orm.tools.count import build as build_count
from mcp_django.orm.tools.create import build as build_create
from mcp_django.orm.tools.delete import build as build_delete
from mcp_django.orm.tools.describe import build as build_describe
from mcp_django.orm.tools.get import build as build_get
from mcp_django.orm.tools.history import build as build_history
from mcp_django.orm.tools.list import build as build_list
from mcp_django.orm.tools.update import build as build_update
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset

TOOL_BUILDERS: "dict[str, Callable[[ModelToolset], Tool]]" = {
    "describe": build_describe,
    "list": build_list,
    "get": build_get,
    "count": build_count,
    "aggregate": build_aggregate,
    "create": build_create,
    "update": build_update,
    "delete": build_delete,
    "history": build_history,
}
"""Builders by the names that `tools` of a toolset accepts."""
