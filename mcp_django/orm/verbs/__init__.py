"""The verbs: what a ModelToolset can do with its model. Each is a function of a toolset that builds a Tool.

    VERBS["list"](toolset) -> Tool

A verb of a project's own is a method marked with `@tool` in the toolset's class.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...server.primitives import Tool
from .aggregate import build as build_aggregate
from .count import build as build_count
from .create import build as build_create
from .delete import build as build_delete
from .describe import build as build_describe
from .get import build as build_get
from .history import build as build_history
from .list import build as build_list
from .update import build as build_update

if TYPE_CHECKING:
    from ..toolset import ModelToolset

VERBS: "dict[str, Callable[[ModelToolset], Tool]]" = {
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
"""By name, as `tools` of a toolset lists them."""
