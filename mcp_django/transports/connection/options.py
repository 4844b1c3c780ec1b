"""What a channel is opened on, what it may take, and why it ends."""

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
    """Why a channel ends. The transport says it in its own way."""

    GONE = "the client is gone"
    CLOSING = "the server is shutting down"
    OVER = "the session has ended"
    REVOKED = "the credential is not valid any more"
    FORBIDDEN = "the credential is good for less than it was"
    BEHIND = "the client reads too slowly"
    FLOOD = "the client sends too much, whatever it is told"
    OVERSIZE = "a message was too large"
    BINARY = "a message was not text"
    DEAD = "the client does not answer"

    @property
    def sends_rest(self) -> bool:
        """Is what waits still worth sending?"""
        return self not in (Ending.GONE, Ending.BEHIND, Ending.DEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplexLimits:
    """What one channel may take."""

    body: int = 4 << 20
    """Bytes of a message."""
    nesting: int = 64
    in_flight: int = 32
    """Calls at once."""
    unsent: int = 64
    """Messages that may wait for a slow reader; then handlers wait, and requests."""
    unsent_wait: float = 60.0
    """Seconds that they do so for a client that reads nothing."""
    keep_alive: float = 15.0
    """Seconds, about, between two looks at a channel."""
    ping: float = 30.0
    """Seconds of silence after which a client is asked whether it is there, and in which it has to answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a transport knows of a channel when it opens it."""

    credential: Credential | None = None
    """To be verified again as the channel is used; None where there is none."""
    headers: Headers | None = None
    """Those of the request that opened it."""
    kwargs: Mapping[str, Any] | None = None
    """What the URL pattern captured."""
    make_request: Callable[[Principal], Any] | None = None
    """Makes the Django request that opened it, at its first use."""
    context: contextvars.Context | None = None
    """Where the project's code runs; None for a clean one. Each message gets a copy."""
    eras: frozenset[Era] = ERAS
    """What may be spoken on it."""
    pings: bool = False
    """Is nobody else looking whether the client is still there?"""

    def connect(self, principal: Principal, in_flight: dict[jsonrpc.Id, Cancellable]) -> Connection:
        """The connection that calls on the channel have, with one table of those that can be taken back."""
        return Connection(
            principal,
            headers=self.headers,
            kwargs=self.kwargs,
            make_request=self.make_request,
            in_flight=in_flight,
        )
