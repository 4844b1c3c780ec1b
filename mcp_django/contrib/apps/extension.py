"""The extension for apps: it declares the capability, links tools to their apps, and serves the pages."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcp_django.contrib.apps.checks import check_apps
from mcp_django.contrib.apps.confirmation.answers import AnswerProvider
from mcp_django.contrib.apps.confirmation.suspension import AppEra, build_output_schema, can_ask_in_app, finish_run
from mcp_django.contrib.apps.declaration import expects_question
from mcp_django.contrib.apps.pages import IDENTIFIER, accepts_html
from mcp_django.contrib.apps.resources import AppProvider
from mcp_django.extensions import Call, Extension, ProceedWithCall, Revision, Tool
from mcp_django.extensions.calls import Context, Server
from mcp_django.extensions.primitives import Provider, UIOptions


class Apps(Extension):
    """MCP Apps on one server, for `EXTENSIONS`."""

    identifier = IDENTIFIER

    def __init__(self) -> None:
        self._provider: AppProvider | None = None

    def bind(self, server: Server) -> "Apps":
        bound = copy.copy(self)
        bound._provider = AppProvider(server)
        return bound

    def get_providers(self) -> Sequence[Provider]:
        return () if self._provider is None else (self._provider, AnswerProvider())

    def get_tool_fields(self, tool: Tool, revision: Revision) -> Mapping[str, Any]:
        uri = None if self._provider is None else self._provider.find_uri(tool)
        if uri is None and (tool.ui is None or (tool.ui.app is not None and tool.ui.is_for_model)):
            return {}  # the checks report a missing app; the tool still has its text
        link = {} if uri is None else {"resourceUri": uri}
        entry = dict(tool.wire)
        entry["_meta"] = {
            **entry.get("_meta", {}),
            "ui": {**link, "visibility": list((tool.ui or UIOptions()).visibility)},
        }
        if uri is not None and tool.output is not None and expects_question(tool):
            entry["outputSchema"] = build_output_schema(entry["outputSchema"])
        shaped = revision.shape_tool(entry)
        return {name: shaped[name] for name in ("_meta", "outputSchema") if name in shaped}

    def intercepts(self, tool: Tool) -> bool:
        if (tool.ui is None and not tool.confirm) or self._provider is None or not _can_ask(tool):
            return False
        is_called_by_app = tool.ui is not None and not tool.ui.is_for_model
        return is_called_by_app or self._provider.find_uri(tool) is not None

    async def call_tool(
        self, call: Call, tool: Tool, arguments: dict[str, Any], proceed: ProceedWithCall
    ) -> Mapping[str, Any]:
        """Run the tool; a form for a client with apps and without elicitation becomes part of the result."""
        if not accepts_html(call) or not can_ask_in_app(call, tool):
            return await proceed(call)
        era = AppEra(call.era, call)
        return finish_run(call, era, tool, arguments, await proceed(era.extend(call)))

    def check(self) -> Iterable[Any]:
        return () if self._provider is None else check_apps(self._provider.server)


def has_apps(ctx: Context) -> bool:
    """Return True if the client of the call shows apps in HTML."""
    return accepts_html(ctx.call)


def _can_ask(tool: Tool) -> bool:
    """Return True if the tool receives the Context, with which it could ask the user."""
    return tool.handler.injected is not None or tool.has_hooks
