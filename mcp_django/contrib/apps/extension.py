"""The extension for apps: it declares the capability, links tools to their apps, and serves the pages."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcp_django.contrib.apps.pages import MIME_TYPE
from mcp_django.contrib.apps.resources import AppProvider
from mcp_django.extensions import Call, Extension, Revision, Tool
from mcp_django.server.calls.server_core import ServerCore
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context

IDENTIFIER = "io.modelcontextprotocol/ui"


class Apps(Extension):
    """MCP Apps on one server, for `EXTENSIONS`."""

    identifier = IDENTIFIER

    def __init__(self) -> None:
        self._provider: AppProvider | None = None

    def bind(self, server: ServerCore) -> "Apps":
        bound = copy.copy(self)
        bound._provider = AppProvider(server)
        return bound

    def get_providers(self) -> Sequence[Provider]:
        return () if self._provider is None else (self._provider,)

    def get_tool_fields(self, tool: Tool, revision: Revision) -> Mapping[str, Any]:
        if tool.ui is None or self._provider is None:
            return {}
        uri = self._provider.find_uri(tool)
        if tool.ui.app is not None and uri is None and "model" in tool.ui.visibility:
            return {}  # the checks report the app; the tool still has its text
        link = {} if uri is None else {"resourceUri": uri}
        entry = tool.wire
        meta = {**entry.get("_meta", {}), "ui": {**link, "visibility": list(tool.ui.visibility)}}
        shaped = revision.shape_tool({**entry, "_meta": meta})
        return {"_meta": shaped["_meta"]} if "_meta" in shaped else {}

    def check(self) -> Iterable[Any]:
        return ()


def has_apps(ctx: Context) -> bool:
    """Return True if the client of the call shows apps in HTML."""
    return accepts_html(ctx._call)


def accepts_html(call: Call) -> bool:
    """Return True if the client declared the extension with the media type of HTML apps."""
    extensions = call.capabilities.get("extensions")
    declared = extensions.get(IDENTIFIER) if isinstance(extensions, dict) else None
    mime_types = declared.get("mimeTypes") if isinstance(declared, dict) else None
    return isinstance(mime_types, list) and MIME_TYPE in mime_types
