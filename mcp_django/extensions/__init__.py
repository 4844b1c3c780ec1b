"""Public names for protocol extensions: the base class, its decorators, notifications of changes."""

from mcp_django.notifications.publish import (
    anotify_extension_key,
    anotify_session,
    notify_extension_key,
    notify_session,
)
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.extension import Extension, ProceedWithCall
from mcp_django.server.composition.extension_handlers import method, notification, subscription
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.results import ExtensionResult

__all__ = [
    "Call",
    "Era",
    "Extension",
    "ExtensionResult",
    "ProceedWithCall",
    "Revision",
    "Tool",
    "anotify_extension_key",
    "anotify_session",
    "method",
    "notification",
    "notify_extension_key",
    "notify_session",
    "subscription",
]
