"""Serve a Django project to AI clients over the Model Context Protocol.

    from mcp_django import Context, tool

    @tool(permission="shop.view_order")
    def order_status(number: int) -> str: ...

These names are the public API. Importing them requires neither Django's settings nor its app registry. Some names are
imported at their first use: notifications and ModelToolset, which require both, and `owner_of`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcp_django.auth.principal import DjangoPrincipal as Principal
from mcp_django.protocol.errors import MCPError, ToolError
from mcp_django.server.context.context import Context
from mcp_django.server.injection.headers import Header
from mcp_django.server.injection.parameters import Depends
from mcp_django.server.primitives.decorators import completion, prompt, resource, tool
from mcp_django.server.primitives.results import ToolResult
from mcp_django.server.primitives.toolset import Toolset, register
from mcp_django.server.server import Server

if TYPE_CHECKING:
    from mcp_django.auth.principal import owner_of
    from mcp_django.notifications import (
        anotify_list_changed,
        anotify_resource_updated,
        notify_list_changed,
        notify_resource_updated,
        publish_changes,
    )
    from mcp_django.orm import ModelInline, ModelToolset, action

__all__ = [
    "Context",
    "Depends",
    "Header",
    "MCPError",
    "ModelInline",
    "ModelToolset",
    "Principal",
    "Server",
    "ToolError",
    "ToolResult",
    "Toolset",
    "action",
    "anotify_list_changed",
    "anotify_resource_updated",
    "completion",
    "notify_list_changed",
    "notify_resource_updated",
    "owner_of",
    "prompt",
    "publish_changes",
    "register",
    "resource",
    "tool",
]

_LAZY = {
    "ModelInline": "orm",
    "ModelToolset": "orm",
    "action": "orm",
    "anotify_list_changed": "notifications",
    "anotify_resource_updated": "notifications",
    "notify_list_changed": "notifications",
    "notify_resource_updated": "notifications",
    "owner_of": "auth.principal",
    "publish_changes": "notifications",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
