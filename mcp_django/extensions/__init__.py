"""Public names for extensions: base class, decorators, errors, lists.

Those of the submodules are provisional: until the second release with them, they may change with an entry in the
changelog. Notifications are imported at their first use, because they need the models of Django.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcp_django.protocol.errors import InternalError, InvalidParams, MethodNotFound, MissingClientCapability
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.extension import Extension, ProceedWithCall
from mcp_django.server.composition.extension_handlers import get_call, method, notification, subscription
from mcp_django.server.execution.lists import create_cursor, read_cursor
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.results import ExtensionResult

if TYPE_CHECKING:
    from mcp_django.notifications.publish import (
        anotify_extension_key,
        anotify_session,
        notify_extension_key,
        notify_session,
    )

NOTIFICATIONS = frozenset({"anotify_extension_key", "anotify_session", "notify_extension_key", "notify_session"})

__all__ = [
    "Call",
    "Era",
    "Extension",
    "ExtensionResult",
    "InternalError",
    "InvalidParams",
    "MethodNotFound",
    "MissingClientCapability",
    "Overloaded",
    "ProceedWithCall",
    "Revision",
    "Tool",
    "anotify_extension_key",
    "anotify_session",
    "create_cursor",
    "get_call",
    "method",
    "notification",
    "notify_extension_key",
    "notify_session",
    "read_cursor",
    "subscription",
]


def __getattr__(name: str) -> Any:
    if name in NOTIFICATIONS:
        return getattr(import_module("mcp_django.notifications.publish"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
