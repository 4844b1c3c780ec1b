"""Extensions: methods, notifications, subscriptions and results beyond those of the protocol.

    class Audit(Extension):
        identifier = "com.example/audit"

        @method("audit/list")
        def list_entries(self, ctx: Context, limit: int = 10) -> JSONObject: ...

An extension belongs to one server. The server declares it under its identifier, with its settings
(basic/lifecycle, capability negotiation). A client declares it in the same way, in each request or in the handshake.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from mcp_django.protocol.errors import MethodNotFound, MissingClientCapability
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.provider import Provider
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.server.server import Server

ProceedWithCall = Callable[[Call], Awaitable[JSONObject]]
"""Function that runs the tool of a call and returns the body of its result."""


class Extension:
    """A protocol extension of one server."""

    identifier: ClassVar[str] = ""
    """Name with a prefix, such as `com.example/audit`."""
    eras: ClassVar[frozenset[Era]] = frozenset(Era)
    """Eras in which the extension exists."""
    result_types: ClassVar[frozenset[str]] = frozenset()
    """Values of `resultType` that its `ExtensionResult` bodies may have."""

    def bind(self, server: "Server") -> "Extension":
        """Return the extension for one server, whose primitives are not complete yet.

        Called once for each server. The default is the extension itself, without a reference to its server.
        """
        return self

    def get_providers(self) -> Sequence[Provider]:
        """Return providers of primitives that the server has in addition. Called once, after `bind`."""
        return ()

    async def get_instructions(self, call: Call) -> str | None:
        """Return a text that follows the instructions of the server, for the client of the call."""
        return None

    def get_settings(self, revision: Revision) -> JSONMapping:
        """Return the settings that the server declares, a JSON object."""
        return {}

    def get_capabilities(self, revision: Revision) -> JSONMapping:
        """Return the server capabilities that declare the extension to clients of `revision`."""
        return {"extensions": {self.identifier: dict(self.get_settings(revision))}}

    def supports_revision(self, revision: Revision) -> bool:
        """Return True if the extension exists in `revision`."""
        return revision.era in self.eras

    def is_declared(self, call: Call) -> bool:
        """Return True if the client of the call declared the extension."""
        return self.supports_revision(call.revision) and call.supports(self._required_capability)

    def require_declaration(self, call: Call) -> None:
        """Check that the client declared the extension.

        Raises:
            MissingClientCapability: in the stateless era; clients can declare more and retry the request.
            MethodNotFound: in the handshake era, where the declaration is final.
        """
        if self.is_declared(call):
            return
        if call.revision.era is Era.STATELESS:
            raise MissingClientCapability(self._required_capability)
        raise MethodNotFound(f"{call.method[:128]} needs the extension {self.identifier}, which was not declared")

    def get_tool_fields(self, tool: Tool, revision: Revision) -> JSONMapping:
        """Return the members that the entry of `tool` in `tools/list` has in addition.

        The result depends on its arguments only: lists are cached.
        """
        return {}

    def intercepts(self, tool: Tool) -> bool:
        """Return True if the calls of `tool` go through `call_tool`.

        Asked before each call on servers with an extension that overrides `call_tool`.
        """
        return True

    async def call_tool(self, call: Call, tool: Tool, arguments: JSONObject, proceed: ProceedWithCall) -> JSONMapping:
        """Run a call of a tool, or answer it in another way.

        The permission is decided, the use is counted, and the arguments are valid. `proceed` takes the call, or a copy
        of it, and returns the body of the result. Return that body, or an `ExtensionResult`.
        """
        return await proceed(call)

    def check(self) -> Iterable[Any]:
        """Yield messages of Django's system checks about the project's use of the extension."""
        return ()

    @property
    def _required_capability(self) -> JSONObject:
        return {"extensions": {self.identifier: {}}}
