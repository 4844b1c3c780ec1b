"""Public names for protocol extensions: base class, decorators, errors, lists, notifications."""

from mcp_django.notifications.publish import (
    anotify_extension_key,
    anotify_session,
    notify_extension_key,
    notify_session,
)
from mcp_django.protocol.errors import InternalError, InvalidParams, MethodNotFound, MissingClientCapability
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.extension import Extension, ProceedWithCall
from mcp_django.server.composition.extension_handlers import get_call, method, notification, subscription
from mcp_django.server.execution.lists import create_cursor, read_cursor
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.results import ExtensionResult

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
