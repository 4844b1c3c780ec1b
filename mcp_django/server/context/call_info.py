"""What a handler can read of its call: who asks, by what request, of which server, with what client."""

import asyncio
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.trace_context import TraceContext
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.session import Session
from mcp_django.server.ports import Principal

if TYPE_CHECKING:
    from mcp_django.server.primitives.base import Primitive, Tool
    from mcp_django.server.server import Server


class Facts:
    """The part of a Context that only looks."""

    __slots__ = ("_arguments", "_call", "_loop", "_primitive", "_state")

    def __init__(self, call: Call, primitive: "Primitive | None") -> None:
        self._call, self._primitive = call, primitive
        self._loop = asyncio.get_running_loop()
        self._state: dict[str, Any] | None = None
        self._arguments: Mapping[str, Any] | None = None

    def stand_for(self, tool: "Tool", arguments: Mapping[str, Any]) -> None:
        """From here on it is this tool that runs, though the client called something else that stands for it."""
        self._primitive, self._arguments = tool, arguments

    @property
    def principal(self) -> Principal:
        """Who asks, with scopes and claims."""
        return self._call.connection.principal

    @property
    def user(self) -> Any:
        """The Django user, or None when nobody is logged in."""
        return self._call.connection.principal.user

    @property
    def request(self) -> Any:
        """The Django HttpRequest, on both doors; None on transports without HTTP."""
        return self._call.request

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers by lower-case name, credentials left out; empty on transports without them."""
        return self._call.headers

    @property
    def session(self) -> Session | None:
        """The session (handshake era), or None (stateless era)."""
        return self._call.connection.session

    @property
    def server(self) -> "Server":
        """The server that this was registered on. Where that is mounted in another one, the client called that."""
        return self._call.server

    @property
    def revision(self) -> str:
        """The protocol revision of this call, as on the wire."""
        return self._call.revision.version

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """What the URL pattern captured, such as a tenant's slug."""
        return self._call.kwargs

    @property
    def name(self) -> str | None:
        """The name of the tool, prompt or resource that runs."""
        return None if self._primitive is None else self._primitive.name

    @property
    def tool_name(self) -> str | None:
        """The tool's name; None in a resource, prompt or completion."""
        primitive = self._primitive
        return primitive.name if primitive is not None and primitive.kind == "tool" else None

    @property
    def tool(self) -> "Tool | None":
        """The tool that runs; None in a resource, prompt or completion."""
        primitive = self._primitive
        return cast("Tool", primitive) if primitive is not None and primitive.kind == "tool" else None

    @property
    def uri(self) -> str | None:
        """The URI that is read, as the client wrote it; None in anything but a resource."""
        uri = self._call.params.get("uri")
        return uri if self._call.method == "resources/read" and isinstance(uri, str) else None

    @property
    def call_id(self) -> jsonrpc.Id | None:
        """The request's id, as the client chose it."""
        return self._call.id

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the tool or prompt as the client gave them, for guards and interceptors; a copy."""
        given = self._call.params.get("arguments") if self._arguments is None else self._arguments
        return copy.deepcopy(given or {})

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The `metadata=` that the tool and its toolset were registered with."""
        return {} if self._primitive is None else self._primitive.metadata

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's `_meta`."""
        return self._call.meta

    @property
    def trace(self) -> TraceContext | None:
        """The trace that the client says this call belongs to (W3C Trace Context); None when it names none."""
        return self._call.trace

    @property
    def state(self) -> dict[str, Any]:
        """Scratch space: the session's in the handshake era (in this process), this call's in the stateless era."""
        if self._state is None:
            session = self._call.connection.session
            self._state = {} if session is None else session.state
        return self._state

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan yielded."""
        return self._call.server.lifespan.state(self._loop)

    @property
    def client_info(self) -> Mapping[str, Any]:
        """The client's name and version, as it says; may be empty."""
        return self._call.client_info

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """What the client declared it can do."""
        return self._call.capabilities

    def supports(self, capability: str) -> bool:
        """Can the client do this? A dotted path, such as `"sampling"` or `"elicitation.url"`."""
        needed: dict[str, Any] = {}
        for part in reversed(capability.split(".")):
            needed = {part: needed}
        return self._call.supports(needed)

    @property
    def cancelled(self) -> bool:
        """Was this call given up? For loops in threads, which nothing can interrupt."""
        return self._call.cancelled
