"""Adapters of messages: changes to single methods, around the requests of the SDK's session."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import mcp_types as types
from mcp.shared.dispatcher import CallOptions

from mcp_django.client.options import TASKS_EXTENSION
from mcp_django.client.session.param_headers import ParamHeaders
from mcp_django.client.session.validation import LIST_MEMBERS, PageValidator
from mcp_django.protocol.revisions import Revision

Wire = dict[str, Any]


class AdaptedConnection(Protocol):
    """State of a connection that adapters read."""

    param_headers: ParamHeaders
    page_validator: PageValidator
    revision: Revision

    @property
    def pinned_revision(self) -> Revision | None:
        """The only accepted revision; None if several are accepted."""


class MessageAdapter:
    """Adapter of one method, which changes nothing by itself."""

    def prepare(
        self, connection: AdaptedConnection, params: Mapping[str, Any], options: CallOptions
    ) -> tuple[Mapping[str, Any], CallOptions]:
        """Return the parameters and the options of a request."""
        return params, options

    def finish(self, connection: AdaptedConnection, method: str, params: Mapping[str, Any], result: Wire) -> Wire:
        """Return the result of a request."""
        if types.PROTOCOL_VERSION_META_KEY in (params.get("_meta") or {}):
            result.setdefault("resultType", "complete")  # the default for servers that omit it
        return result


class HandshakeAdapter(MessageAdapter):
    """Requests the pinned revision, without the extension for tasks, which belongs to the stateless era."""

    def prepare(
        self, connection: AdaptedConnection, params: Mapping[str, Any], options: CallOptions
    ) -> tuple[Mapping[str, Any], CallOptions]:
        capabilities = dict(params.get("capabilities") or {})
        declared = capabilities.pop("extensions", None) or {}
        extensions = {name: settings for name, settings in declared.items() if name != TASKS_EXTENSION}
        if extensions:
            capabilities["extensions"] = extensions
        pinned = connection.pinned_revision
        version = {} if pinned is None else {"protocolVersion": pinned.version}
        return {**params, "capabilities": capabilities, **version}, options


class ToolCallAdapter(MessageAdapter):
    """Sends mirrored arguments as headers, and completes results that are tasks."""

    def prepare(
        self, connection: AdaptedConnection, params: Mapping[str, Any], options: CallOptions
    ) -> tuple[Mapping[str, Any], CallOptions]:
        headers = connection.param_headers.build_headers(params) if params else {}
        if not headers:
            return params, options
        return params, {**options, "headers": {**options.get("headers", {}), **headers}}

    def finish(self, connection: AdaptedConnection, method: str, params: Mapping[str, Any], result: Wire) -> Wire:
        result = super().finish(connection, method, params, result)
        if "task" in params and type(result.get("task")) is dict:
            result.setdefault("content", [])  # The SDK requires it of all results, although a task has none.
        return result


class ListAdapter(MessageAdapter):
    """Removes invalid entries from pages."""

    def finish(self, connection: AdaptedConnection, method: str, params: Mapping[str, Any], result: Wire) -> Wire:
        result = super().finish(connection, method, params, result)
        return connection.page_validator.remove_invalid_entries(method, connection.revision.version, result)


DEFAULT_ADAPTER: Final = MessageAdapter()
ADAPTERS: Final[Mapping[str, MessageAdapter]] = {
    "initialize": HandshakeAdapter(),
    "tools/call": ToolCallAdapter(),
    **dict.fromkeys(LIST_MEMBERS, ListAdapter()),
}
