"""Read-only information about a call: principal, request, server and client."""

import asyncio
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.trace_context import TraceContext
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import Principal
from mcp_django.server.primitives.base import Primitive, Tool

if TYPE_CHECKING:
    from mcp_django.server.server import Server


class CallInfo:
    """Read-only part of a Context."""

    __slots__ = ("_arguments", "_loop", "_state", "call", "primitive")

    def __init__(self, call: Call, primitive: Primitive | None) -> None:
        self.call = call
        """The call, for the engine and for extensions."""
        self.primitive = primitive
        """The primitive whose handler runs; None in a provider."""
        self._loop = asyncio.get_running_loop()
        self._state: JSONObject | None = None
        self._arguments: JSONMapping | None = None

    def set_running_tool(self, tool: Tool, arguments: JSONMapping) -> None:
        """Set the tool that runs in place of the called primitive, which delegates to it."""
        self.primitive = tool
        self._arguments = arguments

    @property
    def principal(self) -> Principal:
        """Principal of the caller, with scopes and claims."""
        return self.call.connection.principal

    @property
    def user(self) -> Any:
        """Django user, or None without a login."""
        return self.call.connection.principal.user

    @property
    def request(self) -> Any:
        """Django HttpRequest, under ASGI and WSGI; None on transports without HTTP."""
        return self.call.request

    @property
    def headers(self) -> Headers:
        """Headers of the request, by name in any case, without credentials; empty without headers."""
        return self.call.headers

    @property
    def session(self) -> ServerSession | None:
        """Session (handshake era), or None (stateless era)."""
        return self.call.connection.session

    @property
    def log_level(self) -> str | None:
        """Lowest level of log messages that the client receives; None if it receives none.

        It is the level that the client set, or the server's `LOG_LEVEL`.
        """
        return self.call.effective_log_level

    @property
    def server(self) -> "Server":
        """Server on which the handler is registered.

        The client may have called another server in which this one is mounted.
        """
        return self.call.server

    @property
    def revision(self) -> str:
        """Protocol revision of this call, in its wire form."""
        return self.call.revision.version

    @property
    def url_kwargs(self) -> Mapping[str, Any]:
        """Values captured by the URL pattern, such as a tenant's slug."""
        return self.call.url_kwargs

    @property
    def name(self) -> str | None:
        """Name of the running tool, prompt or resource."""
        return None if self.primitive is None else self.primitive.name

    @property
    def tool_name(self) -> str | None:
        """Name of the running tool; None in a resource, prompt or completion."""
        primitive = self.primitive
        return primitive.name if primitive is not None and primitive.kind == "tool" else None

    @property
    def tool(self) -> Tool | None:
        """Running tool; None in a resource, prompt or completion."""
        primitive = self.primitive
        return cast(Tool, primitive) if primitive is not None and primitive.kind == "tool" else None

    @property
    def uri(self) -> str | None:
        """Requested URI as the client wrote it; None outside of resources."""
        uri = self.call.params.get("uri")
        return uri if self.call.method == "resources/read" and isinstance(uri, str) else None

    @property
    def call_id(self) -> jsonrpc.Id | None:
        """Id of the request, chosen by the client."""
        return self.call.id

    @property
    def arguments(self) -> JSONMapping:
        """Copy of the client's arguments, for guards and interceptors."""
        given = self.call.params.get("arguments") if self._arguments is None else self._arguments
        return copy.deepcopy(given or {})

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Value of `metadata=` from the registration of the tool and its toolset."""
        return {} if self.primitive is None else self.primitive.metadata

    @property
    def meta(self) -> JSONMapping:
        """`_meta` of the request."""
        return self.call.meta

    @property
    def trace(self) -> TraceContext | None:
        """Trace context sent by the client (W3C Trace Context); None without one."""
        return self.call.trace

    @property
    def state(self) -> JSONObject:
        """Scratch space of the session in this process, or of the call without a session."""
        if self._state is None:
            session = self.call.connection.session
            self._state = {} if session is None else session.state
        return self._state

    @property
    def lifespan(self) -> Any:
        """Value yielded by the server's lifespan."""
        return self.call.server.lifespan.get_state(self._loop)

    @property
    def client_info(self) -> JSONMapping:
        """Name and version of the client, unverified; may be empty."""
        return self.call.client_info

    @property
    def client_capabilities(self) -> JSONMapping:
        """Capabilities declared by the client."""
        return self.call.capabilities

    def supports(self, capability: str) -> bool:
        """Return True if the client declared the capability, such as "elicitation.url"."""
        needed: JSONObject = {}
        for part in reversed(capability.split(".")):
            needed = {part: needed}
        return self.call.supports(needed)

    @property
    def cancelled(self) -> bool:
        """True once the call is cancelled; to be checked by loops in threads."""
        return self.call.record.cancelled
