"""Serve a Django project to AI clients over the Model Context Protocol.

    from mcp_django import Context, tool

    @tool(permission="shop.view_order")
    def order_status(number: int) -> str: ...

These names are the public API. Importing them requires neither Django's settings nor its app registry. Some names are
imported at their first use: notifications and ModelToolset, which require both, `owner_of` and `register_settings`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcp_django.protocol.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp_django.protocol.errors import MCPError, ToolError
from mcp_django.protocol.sampling_types import (
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
    validate_sampling_messages,
)
from mcp_django.protocol.trace_context import TraceContext
from mcp_django.protocol.types import Annotations, Icon, ToolAnnotations
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.current import current_call
from mcp_django.server.calls.outcome import Outcome
from mcp_django.server.client_requests.sampling import Sample
from mcp_django.server.composition.lowlevel import Handlers
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.injection.headers import Header
from mcp_django.server.injection.parameters import Depends
from mcp_django.server.ports import Principal
from mcp_django.server.primitives.base import Completion
from mcp_django.server.primitives.decorators import completion, prompt, resource, tool
from mcp_django.server.primitives.results import PromptResult, ResourceResult, ToolResult
from mcp_django.server.primitives.streaming import ToolStream
from mcp_django.server.primitives.toolset import Toolset, register
from mcp_django.server.server import Server

if TYPE_CHECKING:
    from mcp_django.auth.principal import owner_of
    from mcp_django.conf import register_settings
    from mcp_django.notifications import (
        abroadcast,
        anotify_list_changed,
        anotify_resource_updated,
        broadcast,
        notify_list_changed,
        notify_resource_updated,
        publish_changes,
    )
    from mcp_django.orm import ModelInline, ModelToolset, action

__all__ = [
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "Call",
    "Completion",
    "Context",
    "Depends",
    "EmbeddedResource",
    "Handlers",
    "Header",
    "Icon",
    "ImageContent",
    "MCPError",
    "ModelInline",
    "ModelToolset",
    "Outcome",
    "Principal",
    "PromptMessage",
    "PromptResult",
    "Provider",
    "ResourceLink",
    "ResourceResult",
    "Sample",
    "SamplingMessage",
    "Server",
    "TextContent",
    "TextResourceContents",
    "ToolAnnotations",
    "ToolError",
    "ToolResult",
    "ToolResultContent",
    "ToolStream",
    "ToolUseContent",
    "Toolset",
    "TraceContext",
    "abroadcast",
    "action",
    "anotify_list_changed",
    "anotify_resource_updated",
    "broadcast",
    "completion",
    "current_call",
    "notify_list_changed",
    "notify_resource_updated",
    "owner_of",
    "prompt",
    "publish_changes",
    "register",
    "register_settings",
    "resource",
    "tool",
    "validate_sampling_messages",
]

_LAZY = {
    "ModelInline": "orm",
    "ModelToolset": "orm",
    "abroadcast": "notifications",
    "action": "orm",
    "anotify_list_changed": "notifications",
    "anotify_resource_updated": "notifications",
    "broadcast": "notifications",
    "notify_list_changed": "notifications",
    "notify_resource_updated": "notifications",
    "owner_of": "auth.principal",
    "publish_changes": "notifications",
    "register_settings": "conf",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
