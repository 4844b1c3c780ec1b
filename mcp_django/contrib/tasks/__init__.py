"""Long jobs as tasks: their state is in rows, and any worker answers for them.

    INSTALLED_APPS = [..., "mcp_django.contrib.tasks"]
    MCP = {"SERVERS": {"default": {"EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"]}}}

The extension serves the tasks extension of the stateless era, and the core tasks of the handshake era.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_django.contrib.tasks.extension import Tasks

__all__ = ["Tasks"]


def __getattr__(name: str) -> Any:
    # Lazy, because Django imports this package before its models may be imported.
    if name == "Tasks":
        return import_module("mcp_django.contrib.tasks.extension").Tasks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
