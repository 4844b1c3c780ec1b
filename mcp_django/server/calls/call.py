"""Call and connection: the state of a message and of the exchange that carries it.

A `Connection` holds the facts that the transport provides about the exchange. A `Call` holds one message of that
exchange as its era interprets it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MissingClientCapability, ToolError
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.protocol.trace_context import TraceContext, carrier, read
from mcp_django.protocol.types import LEVELS
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.outcome import UNREAD, Fate, Outcome
from mcp_django.server.calls.session import Cancellable, Session
from mcp_django.server.ports import Principal

if TYPE_CHECKING:
    from mcp_django.server.composition.mounting import Part
    from mcp_django.server.eras.base import Era as EraStrategy
    from mcp_django.server.server import Server
    from mcp_django.server.subscriptions.listen import Subscription


class Connection:
    """Exchange with a client: an HTTP request, a socket or a pipe."""

    __slots__ = (
        "_in_flight",
        "_make_request",
        "_request",
        "headers",
        "kwargs",
        "opened",
        "own_headers",
        "principal",
        "session",
        "streams",
        "subscriptions",
    )

    def __init__(
        self,
        principal: Principal,
        *,
        headers: Headers | None = None,
        session: Session | None = None,
        kwargs: Mapping[str, Any] | None = None,
        make_request: Callable[[Principal], Any] | None = None,
        streams: bool = True,
        in_flight: dict[jsonrpc.Id, Cancellable] | None = None,
    ) -> None:
        """Create a connection, bidirectional if `in_flight` is given.

        All messages of a bidirectional connection share one outgoing stream and one table of requests. The client
        cancels these requests by id.
        """
        self.principal = principal
        self.headers = headers
        """HTTP headers; None on transports without headers.

        A bidirectional connection has the headers of its opening request. They do not describe a single message.
        """
        self.own_headers = headers if in_flight is None else None
        """Headers of the message itself; None where the header rules do not apply."""
        self._in_flight = in_flight
        self.session = session
        self.kwargs = kwargs
        """Values captured by the URL pattern."""
        self.streams = streams
        """True if the transport can send notifications and requests to the client.

        False under WSGI, which can send nothing but the response.
        """
        self.opened: Session | None = None
        """Session opened in this exchange; the transport sends its id to the client."""
        self.subscriptions: dict[jsonrpc.Id, Subscription] | None = None
        """Change streams opened by requests of this exchange, by request id.

        The transport serves them and removes the finished ones. None until the first stream is opened.
        """
        self._make_request = make_request
        self._request: Any = None

    def of_message(self) -> "Connection":
        """Return the connection for one message of a bidirectional connection.

        The message gets its own Django request: handlers write attributes on requests, and the user must be loaded
        after the message arrived.
        """
        if self._make_request is None:
            return self
        own = Connection(
            self.principal,
            headers=self.headers,
            session=self.session,
            kwargs=self.kwargs,
            make_request=self._make_request,
            streams=self.streams,
            in_flight=self._in_flight,
        )

        own.subscriptions = self.subscriptions
        return own

    @property
    def shares(self) -> bool:
        """Return True if all messages share one bidirectional connection."""
        return self._in_flight is not None

    @property
    def in_flight(self) -> dict[jsonrpc.Id, Cancellable] | None:
        """Running calls that the client can cancel, by request id; None if it cannot."""
        if self._in_flight is None and self.session is not None:
            return self.session.in_flight
        return self._in_flight

    @property
    def request(self) -> Any:
        """Django request; None without HTTP. Created on first use if necessary."""
        if self._request is None and self._make_request is not None:
            self._request = self._make_request(self.principal)
        return self._request


@dataclass(slots=True, eq=False)
class Call:
    """A single request or notification under its revision.

    Treat it as immutable: middleware replaces it with a copy.
    """

    message: jsonrpc.Request | jsonrpc.Notification
    revision: Revision
    era: "EraStrategy"
    connection: Connection
    server: "Server"
    outbox: Outbox
    capabilities: dict[str, Any]
    """Client capabilities, from this request or from the handshake."""
    client_info: dict[str, Any]
    meta: dict[str, Any]
    log_level: str | None = None
    """Lowest level of log messages requested by the client; None for no messages."""
    cancelled: bool = field(default=False)
    """True once the client or the server has cancelled the call."""
    started: float = field(default_factory=perf_counter)
    """Time at which the call was created from its message, by `time.perf_counter`."""
    outcome: Outcome | None = None
    """Outcome of the call; None while it runs."""
    fate: Fate = field(default_factory=Fate, repr=False)
    """Mutable record for observers of calls."""
    outer: "Call | None" = field(default=None, repr=False)
    """Same call as the host server sees it; None for a call without a host."""
    part: "Part | None" = field(default=None, repr=False)
    """Mount through which the host serves this server; None without a host."""

    @property
    def root(self) -> "Call":
        """Call as the server that the client contacted sees it."""
        return self if self.outer is None else self.outer.root

    @property
    def id(self) -> jsonrpc.Id | None:
        """Id of the request; None for a notification."""
        return self.message.id if isinstance(self.message, jsonrpc.Request) else None

    @property
    def method(self) -> str:
        return self.message.method

    @property
    def params(self) -> dict[str, Any]:
        return self.message.params or {}

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def session(self) -> Session | None:
        return self.connection.session

    @property
    def request(self) -> Any:
        """Django request; None without HTTP."""
        return self.connection.request

    @property
    def headers(self) -> Mapping[str, str]:
        """Request headers by lower-case name, without credentials; empty without headers."""
        return readable(self.connection.headers)

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Values captured by the URL pattern, such as a tenant's slug."""
        return self.connection.kwargs or {}

    @property
    def duration(self) -> float:
        """Seconds since the call was created from its message."""
        return perf_counter() - self.started

    @property
    def trace(self) -> TraceContext | None:
        """Trace context sent by the client, parsed on first use; None without one."""
        known = self.fate.trace
        if known is UNREAD:
            known = self.fate.trace = read(carrier(self.meta, self.connection.own_headers))
        return cast(TraceContext | None, known)

    def supports(self, needed: Mapping[str, Any]) -> bool:
        """Return True if the client declared the capability `needed`, with its sub-modes."""
        modes = needed.get("elicitation")
        if modes is not None and not self.revision.elicitation.issuperset(modes or {"form"}):
            return False
        if not self.revision.sampling.issuperset(needed.get("sampling", ())):
            return False
        return _covers(self.capabilities, needed)

    @property
    def wanted_level(self) -> str | None:
        """Lowest level of log messages to send to the client; None for no log messages.

        In a session it is the current level of the session. None as well if the server has withdrawn the logging
        capability.
        """
        session = self.connection.session
        lowest = self.log_level if session is None else session.log_level or self.log_level
        return lowest if lowest is not None and "logging" in self.root.server.offers else None

    def hears(self, level: str) -> bool:
        """Return True if the client requested log messages of this level."""
        lowest = self.wanted_level
        return lowest is not None and LEVELS.index(level) >= LEVELS.index(lowest)

    def require(self, needed: dict[str, Any]) -> None:
        """Check that the client declared the capability object `needed`.

        Raises:
            MissingClientCapability: in the stateless era; clients can declare more and retry the request.
            ToolError: in the handshake era.
        """
        if self.supports(needed):
            return
        if self.revision.era is Era.STATELESS:
            raise MissingClientCapability(needed)
        raise ToolError(f"The client does not support {_dotted(needed)}")


def readable(headers: Headers | None) -> dict[str, str]:
    """Return headers as text, without the credential headers."""
    return (
        {}
        if headers is None
        else {k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items() if k not in CREDENTIALS}
    )


def credentials(headers: Headers | None) -> Iterator[str]:
    """Yield the secrets in headers, without schemes and cookie names."""
    for name in CREDENTIALS | {b"mcp-session-id"}:
        value = "" if headers is None else headers.get(name, b"").decode("latin-1")
        for part in value.split(";") if name == b"cookie" else [value]:
            yield (part.partition("=") if name == b"cookie" else part.rpartition(" "))[2].strip()


CREDENTIALS = frozenset({b"authorization", b"cookie", b"proxy-authorization"})
"""Headers that authenticate the caller; handlers never receive them."""


def _dotted(needed: Mapping[str, Any]) -> str:
    name, inner = next(iter(needed.items()))
    return f"{name}.{_dotted(inner)}" if inner else name


def _covers(declared: Any, needed: Mapping[str, Any]) -> bool:
    for name, inner in needed.items():
        have = declared.get(name) if type(declared) is dict else None
        if type(have) is not dict:
            return False
        # client/elicitation: an empty object means form mode, for clients that predate the modes.
        if name == "elicitation" and not have:
            have = {"form": {}}
        if not _covers(have, inner):
            return False
    return True
