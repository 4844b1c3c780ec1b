"""The extensions of one server, with their handlers by name."""

from collections.abc import Mapping, Sequence
from typing import cast

from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.meta import is_valid_key
from mcp_django.protocol.revisions import Revision
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.extension import Extension
from mcp_django.server.composition.extension_handlers import (
    ExtensionHandler,
    ExtensionMethod,
    ExtensionNotification,
    ExtensionSubscription,
    build_handlers,
)
from mcp_django.server.injection.handler import describe_source
from mcp_django.server.primitives.base import Primitive, Tool
from mcp_django.server.primitives.results import ExtensionResult


class ExtensionRegistry:
    """The extensions of one server, and their handlers by name.

    Raises DeclarationError for an invalid extension, and for a name that the protocol or another extension has.
    """

    def __init__(self, extensions: Sequence[Extension] = ()) -> None:
        self.extensions = tuple(extensions)
        self.methods: dict[str, ExtensionMethod] = {}
        self.notifications: dict[str, ExtensionNotification] = {}
        self.subscriptions: dict[str, ExtensionSubscription] = {}
        self.interceptors = tuple(each for each in extensions if type(each).call_tool is not Extension.call_tool)
        """Extensions that intercept calls of tools."""
        self.instructing = tuple(
            each for each in extensions if type(each).get_instructions is not Extension.get_instructions
        )
        """Extensions that add to the instructions."""
        self._has_tool_fields = any(type(each).get_tool_fields is not Extension.get_tool_fields for each in extensions)
        self._tables = cast(
            Mapping[type[ExtensionHandler], dict[str, ExtensionHandler]],
            {
                ExtensionMethod: self.methods,
                ExtensionNotification: self.notifications,
                ExtensionSubscription: self.subscriptions,
            },
        )
        identifiers = [extension.identifier for extension in extensions]
        for extension in extensions:
            where = describe_source(type(extension))
            if "/" not in extension.identifier or not is_valid_key(extension.identifier):
                raise DeclarationError(
                    f"{where}: identifier {extension.identifier!r} must be a name with a prefix, such as "
                    "'com.example/audit'"
                )
            if identifiers.count(extension.identifier) > 1:
                raise DeclarationError(f"{where}: the server has two extensions {extension.identifier!r}")
            self._add(extension)

    def _add(self, extension: Extension) -> None:
        for handler in build_handlers(extension):
            table = self._tables[type(handler)]
            if handler.name in table:
                raise DeclarationError(
                    f"{handler.source}: {handler.name!r} is already a {handler.kind} of {table[handler.name].source}"
                )
            table[handler.name] = handler

    def find_for_result(self, result: ExtensionResult) -> Extension:
        """Return the extension that has the type of a result. Raises LookupError."""
        for extension in self.extensions:
            if result.result_type in extension.result_types:
                return extension
        raise LookupError(
            f"no extension of this server has the result type {result.result_type!r}; add it to result_types"
        )

    def find_method(self, name: str, revision: Revision) -> ExtensionMethod | None:
        """Return the method with this name if it exists in `revision`."""
        method = self.methods.get(name)
        if method is None or not method.supports_revision(revision):
            return None
        return method

    def add_tool_fields(self, entry: JSONObject, tool: Primitive, revision: Revision) -> JSONObject:
        """Return an entry of `tools/list` with the members of the extensions."""
        if not self._has_tool_fields or not isinstance(tool, Tool):
            return entry
        for extension in self.extensions:
            if extension.supports_revision(revision):
                entry = {**entry, **extension.get_tool_fields(tool, revision)}
        return entry

    def get_capabilities(self, revision: Revision) -> list[JSONMapping]:
        """Return the capabilities that each extension declares in `revision`."""
        return [each.get_capabilities(revision) for each in self.extensions if each.supports_revision(revision)]
