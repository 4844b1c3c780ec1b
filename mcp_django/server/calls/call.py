"""One call: a message, and everything around it that the engine knows.

A `Connection` holds what the transport knows about the exchange, a `Call` what the era made of one message in it.
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
    """One exchange with a client: an HTTP request, a socket, a pipe."""

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
        """`in_flight` makes it a channel: one way back that all messages share, and one table of requests, which their
        client takes back by id.
        """
        self.principal = principal
        self.headers = headers
        """None where the transport has none. On a channel they are those that opened it, and say nothing of a
        message.
        """
        self.own_headers = headers if in_flight is None else None
        """The headers that came with the message itself; None where the rules for them do not apply."""
        self._in_flight = in_flight
        self.session = session
        self.kwargs = kwargs
        """What the URL pattern captured."""
        self.streams = streams
        """Can this transport carry more than answers: notifications, and questions to the client? Not under WSGI."""
        self.opened: Session | None = None
        """The session that this exchange opened, for the transport to name to the client."""
        self.subscriptions: dict[jsonrpc.Id, Subscription] | None = None
        """The streams of changes that requests of this exchange opened, by their ids; the transport serves them, and
        takes out those that are over. None as long as there was none.
        """
        self._make_request = make_request
        self._request: Any = None

    def of_message(self) -> "Connection":
        """The connection of a channel as one message has it: with a Django request of its own, because handlers write
        on requests, and because its user is not to be older than the message.
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
        """Is this a channel?"""
        return self._in_flight is not None

    @property
    def in_flight(self) -> dict[jsonrpc.Id, Cancellable] | None:
        """The calls being served that the client can take back, by request id; None where it cannot."""
        if self._in_flight is None and self.session is not None:
            return self.session.in_flight
        return self._in_flight

    @property
    def request(self) -> Any:
        """The Django request, made at its first use where the transport has none of its own; None without HTTP."""
        if self._request is None and self._make_request is not None:
            self._request = self._make_request(self.principal)
        return self._request


@dataclass(slots=True, eq=False)
class Call:
    """One request or notification under its revision. Treat it as immutable; middleware replaces it."""

    message: jsonrpc.Request | jsonrpc.Notification
    revision: Revision
    era: "EraStrategy"
    connection: Connection
    server: "Server"
    outbox: Outbox
    capabilities: dict[str, Any]
    """The client's, as the revision says: of this request, or of the handshake."""
    client_info: dict[str, Any]
    meta: dict[str, Any]
    log_level: str | None = None
    """The lowest level of log message that the client wants; None when it wants none."""
    cancelled: bool = field(default=False)
    """The client or the server gave this call up."""
    started: float = field(default_factory=perf_counter)
    """When it was made of its message, by `time.perf_counter`."""
    outcome: Outcome | None = None
    """How it ended; None while it runs."""
    fate: Fate = field(default_factory=Fate, repr=False)
    """What is noted for those who observe calls."""
    outer: "Call | None" = field(default=None, repr=False)
    """The same as the server sees it that this one is mounted in; None where the client called this one."""
    part: "Part | None" = field(default=None, repr=False)
    """How this server is mounted there."""

    @property
    def root(self) -> "Call":
        """The call as the server sees it that the client called."""
        return self if self.outer is None else self.outer.root

    @property
    def id(self) -> jsonrpc.Id | None:
        """The request's id; None marks a notification."""
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
        """The Django request; None without HTTP."""
        return self.connection.request

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers by lower-case name, credentials left out; empty on transports without them."""
        return readable(self.connection.headers)

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """What the URL pattern captured, such as a tenant's slug."""
        return self.connection.kwargs or {}

    @property
    def duration(self) -> float:
        """Seconds since it was made of its message."""
        return perf_counter() - self.started

    @property
    def trace(self) -> TraceContext | None:
        """The trace that the client says this call belongs to; read when it is first asked for."""
        known = self.fate.trace
        if known is UNREAD:
            known = self.fate.trace = read(carrier(self.meta, self.connection.own_headers))
        return cast(TraceContext | None, known)

    def supports(self, needed: Mapping[str, Any]) -> bool:
        """Did the client declare the capability object `needed`, down to its sub-modes?"""
        modes = needed.get("elicitation")
        if modes is not None and not self.revision.elicitation.issuperset(modes or {"form"}):
            return False
        if not self.revision.sampling.issuperset(needed.get("sampling", ())):
            return False
        return _covers(self.capabilities, needed)

    @property
    def wanted_level(self) -> str | None:
        """The least level of log messages that the client wants; that of a session is the one it has now. None for
        none, and where the server has taken the capability away.
        """
        session = self.connection.session
        lowest = self.log_level if session is None else session.log_level or self.log_level
        return lowest if lowest is not None and "logging" in self.root.server.offers else None

    def hears(self, level: str) -> bool:
        """Does the client want log messages of this level?"""
        lowest = self.wanted_level
        return lowest is not None and LEVELS.index(level) >= LEVELS.index(lowest)

    def require(self, needed: dict[str, Any]) -> None:
        """Raise unless the client declared `needed`: MissingClientCapability where clients declare it anew for each
        request, and so may mend it; else a ToolError.
        """
        if self.supports(needed):
            return
        if self.revision.era is Era.STATELESS:
            raise MissingClientCapability(needed)
        raise ToolError(f"The client does not support {_dotted(needed)}")


def readable(headers: Headers | None) -> dict[str, str]:
    """Headers as text, without those that prove who asks."""
    return (
        {}
        if headers is None
        else {k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items() if k not in CREDENTIALS}
    )


def credentials(headers: Headers | None) -> Iterator[str]:
    """The secrets in headers, without what stands around them: schemes, names of cookies."""
    for name in CREDENTIALS | {b"mcp-session-id"}:
        value = "" if headers is None else headers.get(name, b"").decode("latin-1")
        for part in value.split(";") if name == b"cookie" else [value]:
            yield (part.partition("=") if name == b"cookie" else part.rpartition(" "))[2].strip()


CREDENTIALS = frozenset({b"authorization", b"cookie", b"proxy-authorization"})
"""Headers that prove who asks; no handler sees them."""


def _dotted(needed: Mapping[str, Any]) -> str:
    name, inner = next(iter(needed.items()))
    return f"{name}.{_dotted(inner)}" if inner else name


def _covers(declared: Any, needed: Mapping[str, Any]) -> bool:
    for name, inner in needed.items():
        have = declared.get(name) if type(declared) is dict else None
        if type(have) is not dict:
            return False
        # client/elicitation: an empty object means form mode, for the clients that knew no other.
        if name == "elicitation" and not have:
            have = {"form": {}}
        if not _covers(have, inner):
            return False
    return True
