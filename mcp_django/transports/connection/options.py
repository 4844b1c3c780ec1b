"""Options, limits and close reasons of a connection."""

import contextvars
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.revisions import Era
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.session import Cancellable
from mcp_django.server.ports import Principal
from mcp_django.transports.credentials import Credential

ERAS = frozenset(Era)


class Ending(enum.Enum):
    """Reasons for the end of a connection. Each transport reports them in its own way."""

    GONE = "the client disconnected"
    CLOSING = "the server is shutting down"
    OVER = "the session has ended"
    REVOKED = "the credential has expired or was revoked"
    FORBIDDEN = "the credential has lost rights"
    BEHIND = "the client reads too slowly"
    FLOOD = "the client keeps sending too many messages"
    OVERSIZE = "a message was too large"
    BINARY = "a message was not text"
    DEAD = "the client does not answer pings"

    @property
    def sends_rest(self) -> bool:
        """Return True if pending messages should still be sent."""
        return self not in (Ending.GONE, Ending.BEHIND, Ending.DEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplexLimits:
    """Limits of one connection."""

    body: int = 4 << 20
    """Maximum bytes of a message."""
    nesting: int = 64
    in_flight: int = 32
    """Maximum concurrent calls."""
    unsent: int = 64
    """Maximum messages in the queue of a slow client; then handlers and requests wait."""
    unsent_wait: float = 60.0
    """Seconds of waiting after which a client that reads nothing is disconnected."""
    keep_alive: float = 15.0
    """Approximate seconds between two checks of a connection."""
    ping: float = 30.0
    """Seconds of silence after which a ping is sent, and seconds to answer it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Properties of a connection that its transport sets when it opens it."""

    credential: Credential | None = None
    """Credential, verified again while the connection is used; None without one."""
    headers: Headers | None = None
    """Headers of the request that opened the connection."""
    kwargs: Mapping[str, Any] | None = None
    """Arguments captured by the URL pattern."""
    make_request: Callable[[Principal], Any] | None = None
    """Callable that builds the Django request of the connection at its first use."""
    context: contextvars.Context | None = None
    """Context in which code of the project runs; None for an empty one.

    Each message gets a copy.
    """
    eras: frozenset[Era] = ERAS
    """Eras allowed on the connection."""
    pings: bool = False
    """True if pings are needed because the transport does not detect dead clients."""

    def connect(self, principal: Principal, in_flight: dict[jsonrpc.Id, Cancellable]) -> Connection:
        """Create the connection object of the calls, with one table of cancellable calls."""
        return Connection(
            principal,
            headers=self.headers,
            kwargs=self.kwargs,
            make_request=self.make_request,
            in_flight=in_flight,
        )
