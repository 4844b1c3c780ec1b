"""Serve a Django project to AI clients over the Model Context Protocol.

    from mcp_django import Context, tool

    @tool(permission="shop.view_order")
    def order_status(number: int) -> str: ...

These names are the public API; importing them needs neither Django's settings nor its app registry. The notifications
and ModelToolset, which need both, `owner_of` and `register_settings` are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .protocol.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from .protocol.errors import MCPError, ToolError
from .protocol.sampling import SamplingMessage, ToolResultContent, ToolUseContent, validate_sampling_messages
from .protocol.trace import TraceContext
from .protocol.types import Annotations, Icon, ToolAnnotations
from .server.call import Call
from .server.context import Context
from .server.current import current_call
from .server.decorators import completion, prompt, resource, tool
from .server.injection import Depends
from .server.lowlevel import Handlers
from .server.outcome import Outcome
from .server.ports import Principal
from .server.primitives import Completion
from .server.providers import Provider
from .server.request_headers import Header
from .server.results import PromptResult, ResourceResult, ToolResult
from .server.sampling import Sample
from .server.server import Server
from .server.tool_stream import ToolStream
from .server.toolset import Toolset, register

if TYPE_CHECKING:
    from .auth.principal import owner_of
    from .conf import register_settings
    from .notifications import (
        abroadcast,
        anotify_list_changed,
        anotify_resource_updated,
        broadcast,
        notify_list_changed,
        notify_resource_updated,
        publish_changes,
    )
    from .orm import ModelInline, ModelToolset, action

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
