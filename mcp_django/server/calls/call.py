"""Call and connection: the state of a message and of the exchange that carries it.

A `Connection` holds the facts that the transport provides about the exchange. A `Call` holds one message of that
exchange as its era interprets it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import KW_ONLY, dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError, MissingClientCapability, ToolError
from mcp_django.protocol.headers import NAMED_PARAMS, Headers
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.protocol.trace_context import TraceContext, find_carrier, parse
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.outcome import UNREAD_TRACE, CallRecord
from mcp_django.server.calls.session import Cancellable, ServerSession
from mcp_django.server.injection.headers import CREDENTIAL_HEADERS
from mcp_django.server.ports import Principal
from mcp_django.server.primitives.base import MountView

if TYPE_CHECKING:
    from mcp_django.server.server import Server


class NetworkInfo(NamedTuple):
    """Network of an exchange, in the words of OpenTelemetry."""

    transport: str
    """"tcp" or "pipe"."""
    protocol: str | None = None
    """"http" or "websocket"; None for a pipe."""
    version: str | None = None
    """Version of the protocol, such as "1.1" or "2"; None if the server does not report it."""
    peer: str | None = None
    """Address of the peer, which may be a proxy; None if the server does not report it."""
    port: int | None = None
    """Port of the peer."""
    scheme: str = "http"
    """"http" or "https", as the server reports it; without meaning for a pipe."""


PIPE = NetworkInfo("pipe")
_NO_HEADERS = Headers()


@dataclass(slots=True, eq=False)
class Connection:
    """Exchange with a client: an HTTP request, a socket or a pipe.

    It is bidirectional if `shared_calls` is given. All messages of a bidirectional connection share one outgoing stream
    and one table of running calls.
    """

    principal: Principal
    _: KW_ONLY
    headers: Headers | None = None
    """HTTP headers; None on transports without headers.

    A bidirectional connection has the headers of its opening request. They do not describe a single message.
    """
    session: ServerSession | None = None
    url_kwargs: Mapping[str, Any] | None = None
    """Values captured by the URL pattern."""
    make_request: Callable[[Principal], Any] | None = None
    """Function that creates the Django request; None without HTTP."""
    supports_streaming: bool = True
    """True if the transport can send notifications and requests to the client.

    False under WSGI, which can send nothing but the response.
    """
    claim_wait: Callable[[str], AbstractContextManager[bool]] | None = None
    """Function that claims a wait for a principal, by its key (`Call.claim_wait`).

    None where waits hold no thread.
    """
    shared_calls: dict[jsonrpc.Id, Cancellable] | None = None
    """Running calls of all messages, which the client cancels by id; None for a single exchange."""
    network: NetworkInfo | None = None
    """Network of the exchange; None for calls within the process."""

    message_headers: Headers | None = field(init=False)
    """Headers of the message itself; None where the header rules do not apply."""
    opened_session: ServerSession | None = field(default=None, init=False)
    """Session opened in this exchange; the transport sends its id to the client."""
    subscriptions: dict[jsonrpc.Id, Any] | None = field(default=None, init=False)
    """Change streams opened by requests of this exchange, by request id.

    They are `subscriptions.listen.Subscription` objects. The transport serves them and removes the finished ones. None
    until the first stream is opened.
    """
    _request: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.message_headers = None if self.is_bidirectional else self.headers

    def for_message(self) -> "Connection":
        """Return the connection for one message of a bidirectional connection.

        The message gets its own Django request: handlers write attributes on requests, and the user must be loaded
        after the message arrived.
        """
        if self.make_request is None:
            return self
        connection = replace(self)
        connection.subscriptions = self.subscriptions
        return connection

    @property
    def is_bidirectional(self) -> bool:
        """Return True if all messages share one bidirectional connection."""
        return self.shared_calls is not None

    @property
    def in_flight(self) -> dict[jsonrpc.Id, Cancellable] | None:
        """Running calls that the client can cancel, by request id; None if it cannot."""
        if self.shared_calls is None and self.session is not None:
            return self.session.in_flight
        return self.shared_calls

    @property
    def request(self) -> Any:
        """Django request; None without HTTP. Created on first use if necessary."""
        if self._request is None and self.make_request is not None:
            self._request = self.make_request(self.principal)
        return self._request


class EraStrategy(Protocol):
    """Strategy of one era for one server."""

    name: Era

    def parse(self, raw: Any, connection: Connection) -> jsonrpc.Message | list[Any]:
        """Parse a decoded body into a message, or return the list of a batch.

        Raises InvalidRequest for a shape that the era does not allow.
        """

    def create_call(
        self, message: jsonrpc.Request | jsonrpc.Notification, connection: Connection, outbox: Outbox
    ) -> "Call":
        """Create the call of a message. Raises MCPError by the era's envelope rules."""

    def check(self, call: "Call") -> None:
        """Check the fields inside the envelope of a known method. Raises InvalidParams."""

    def add_result_fields(self, call: "Call", body: JSONObject, *, private: bool = True) -> JSONObject:
        """Add the era's fields to a complete result in place, and return it."""

    def add_round_fields(self, call: "Call", body: JSONObject) -> JSONObject:
        """Add the era's fields to a result of another type than complete, and return it."""

    def get_http_status(self, problem: MCPError) -> int:
        """Return the HTTP status of an error."""

    def resume_conversation(self, call: "Call") -> Any:
        """Return the `ReplayConversation` that a retry continues, or None for a first call.

        Raises InvalidParams.
        """

    def start_conversation(self, call: "Call") -> Any:
        """Start a `ClientConversation` for the call's first request to the client."""


@dataclass(slots=True, eq=False)
class Call:
    """A single request or notification under its revision.

    Middleware never changes a call, but replaces it by a copy. Changes during the call belong to its record, which all
    copies share. Python does not enforce this, because it would cost each call several microseconds.
    """

    message: jsonrpc.Request | jsonrpc.Notification
    _: KW_ONLY
    revision: Revision
    era: EraStrategy
    connection: Connection
    server: "Server"
    outbox: Outbox
    capabilities: JSONObject
    """Client capabilities, from this request or from the handshake."""
    client_info: JSONObject
    meta: JSONObject
    log_level: str | None = None
    """Lowest level of log messages requested by the client; None for no messages."""
    started_at: float = field(default_factory=perf_counter)
    """Time at which the call was created from its message, by `time.perf_counter`."""
    record: CallRecord = field(default_factory=CallRecord, repr=False)
    """Mutable record of the call, which its copies share."""
    host_call: "Call | None" = field(default=None, repr=False)
    """Same call as the host server sees it; None for a call without a host."""
    mount: "MountView | None" = field(default=None, repr=False)
    """Mount through which the host serves this server; None without a host."""

    @property
    def root(self) -> "Call":
        """Call as the server that the client contacted sees it."""
        return self if self.host_call is None else self.host_call.root

    @property
    def id(self) -> jsonrpc.Id | None:
        """Id of the request; None for a notification."""
        return self.message.id if isinstance(self.message, jsonrpc.Request) else None

    @property
    def method(self) -> str:
        return self.message.method

    @property
    def params(self) -> JSONObject:
        return self.message.params or {}

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def session(self) -> ServerSession | None:
        return self.connection.session

    @property
    def request(self) -> Any:
        """Django request; None without HTTP."""
        return self.connection.request

    @property
    def headers(self) -> Headers:
        """Headers of the request, by name in any case, without credentials; empty without headers."""
        return redact_headers(self.connection.headers)

    @property
    def url_kwargs(self) -> Mapping[str, Any]:
        """Values captured by the URL pattern, such as a tenant's slug."""
        return self.connection.url_kwargs or {}

    @property
    def duration(self) -> float:
        """Seconds since the call was created from its message."""
        return perf_counter() - self.started_at

    @property
    def trace(self) -> TraceContext | None:
        """Trace context sent by the client, parsed on first use; None without one."""
        trace = self.record.trace
        if trace is UNREAD_TRACE:
            trace = self.record.trace = parse(find_carrier(self.meta, self.connection.message_headers))
        return cast(TraceContext | None, trace)

    def claim_wait(self) -> AbstractContextManager[bool]:
        """Wrap a wait for work of others: for a task, a client, or another request.

        The value of the `with` statement is False if this call has to answer at once. Under WSGI, too many requests
        may hold threads of the server already.
        """
        claim = self.connection.claim_wait
        return nullcontext(True) if claim is None else claim(self.principal.key)

    def supports(self, needed: JSONMapping) -> bool:
        """Return True if the client declared the capability `needed`, with its sub-modes."""
        modes = needed.get("elicitation")
        if modes is not None and not self.revision.elicitation.issuperset(modes or {"form"}):
            return False
        if not self.revision.sampling.issuperset(needed.get("sampling", ())):
            return False
        return _is_declared(self.capabilities, needed)

    @property
    def effective_log_level(self) -> str | None:
        """Lowest level of log messages to send to the client; None for no log messages.

        In a session it is the current level of the session. None as well if the server has withdrawn the logging
        capability.
        """
        session = self.connection.session
        lowest = self.log_level if session is None else session.log_level or self.log_level
        return lowest if lowest is not None and "logging" in self.root.server.offered_capabilities else None

    def wants_log_level(self, level: str) -> bool:
        """Return True if the client requested log messages of this level."""
        lowest = self.effective_log_level
        return lowest is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(lowest)

    def require_capability(self, needed: JSONObject) -> None:
        """Check that the client declared the capability object `needed`.

        Raises:
            MissingClientCapability: in the stateless era; clients can declare more and retry the request.
            ToolError: in the handshake era.
        """
        if self.supports(needed):
            return
        if self.revision.era is Era.STATELESS:
            raise MissingClientCapability(needed)
        raise ToolError(f"The client does not support {_format_capability(needed)}")


CURRENT_CALL: ContextVar[Call | None] = ContextVar("mcp_django.call", default=None)
"""Current call, for code without access to it, such as log filters; set by the pipeline.

It is a context variable, which asyncio copies into tasks and asgiref into threads.
"""


def current_call() -> Call | None:
    """Return the MCP call that this code runs for; None outside of a call.

    Also works in threads and tasks that the call started.
    """
    return CURRENT_CALL.get()


def reset_current_call(token: "Token[Call | None]") -> None:
    """Undo a `CURRENT_CALL.set`."""
    try:
        CURRENT_CALL.reset(token)
    except ValueError:
        pass  # closed by the garbage collector, in another context: the variable no longer exists there


def get_request_identity(call: Call) -> list[Any]:
    """Return JSON that is equal for repetitions of a request by the same caller."""
    return [
        call.server.alias,
        call.principal.key,
        call.method,
        call.params.get(NAMED_PARAMS.get(call.method, "name")),
        call.params.get("arguments"),
        {name: str(value) for name, value in call.url_kwargs.items()},
    ]


def redact_headers(headers: Headers | None) -> Headers:
    """Return headers without the credential headers."""
    return _NO_HEADERS if headers is None else headers.without(CREDENTIAL_HEADERS)


def iter_header_secrets(headers: Headers | None) -> Iterator[str]:
    """Yield the secrets in headers, without schemes and cookie names."""
    for name in CREDENTIAL_HEADERS | {b"mcp-session-id"}:
        value = "" if headers is None else headers.wire.get(name, b"").decode("latin-1")
        for part in value.split(";") if name == b"cookie" else [value]:
            yield (part.partition("=") if name == b"cookie" else part.rpartition(" "))[2].strip()


def _format_capability(needed: JSONMapping) -> str:
    name, inner = next(iter(needed.items()))
    return f"{name}.{_format_capability(inner)}" if inner else name


def _is_declared(declared: Any, needed: JSONMapping) -> bool:
    for name, inner in needed.items():
        declared_value = declared.get(name) if type(declared) is dict else None
        if type(declared_value) is not dict:
            return False
        # client/elicitation: an empty object means form mode, for clients that predate the modes.
        if name == "elicitation" and not declared_value:
            declared_value = {"form": {}}
        if not _is_declared(declared_value, inner):
            return False
    return True


CallHandler = Callable[[Call], Awaitable[JSONObject]]
Middleware = Callable[[Call, CallHandler], Awaitable[JSONObject]]
"""Function around every message that has become a call.

    async def audit(call, call_next):
        result = await call_next(call)
        ...
        return result

The first function of a server's list is the outermost. It receives `initialize`, `notifications/initialized`, unknown
methods and invalid arguments, and it receives the handler's result. Errors reach it as exceptions. Raising an MCPError
answers the request with that error; this is how to refuse `initialize`.

`dataclasses.replace(call, ...)` passes a changed call on. A notification has `call.id is None`, and its return value is
discarded. During `initialize` no session exists, so the handler cannot send requests to the client.
"""


def chain_middleware(middleware: Sequence[Middleware], innermost: CallHandler) -> CallHandler:
    """Build one function that runs all middleware, the first outermost."""
    handle = innermost
    for layer in reversed(middleware):
        handle = _wrap(layer, handle)
    return handle


def _wrap(layer: Middleware, inner: CallHandler) -> CallHandler:
    def handle(call: Call) -> Awaitable[JSONObject]:
        return layer(call, inner)

    return handle
