"""Options and close reasons of a connection."""

import contextvars
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.revisions import Era
from mcp_django.server.calls.call import Connection, NetworkInfo
from mcp_django.server.calls.session import Cancellable
from mcp_django.server.ports import Principal
from mcp_django.server.subscriptions.listen import Subscription
from mcp_django.transports.credentials import Credential

ALL_ERAS = frozenset(Era)


class CloseReason(enum.Enum):
    """Reasons for the end of a connection. Each transport reports them in its own way."""

    CLIENT_GONE = "the client disconnected"
    SHUTDOWN = "the server is shutting down"
    SESSION_ENDED = "the session has ended"
    REVOKED = "the credential has expired or was revoked"
    FORBIDDEN = "the credential has lost rights"
    SLOW_CLIENT = "the client reads too slowly"
    TOO_MANY_MESSAGES = "the client keeps sending too many messages"
    OVERSIZE = "a message was too large"
    BINARY = "a message was not text"
    PING_TIMEOUT = "the client does not answer pings"

    @property
    def sends_pending(self) -> bool:
        """Return True if pending messages should still be sent."""
        return self not in (CloseReason.CLIENT_GONE, CloseReason.SLOW_CLIENT, CloseReason.PING_TIMEOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Properties of a connection that its transport sets when it opens it."""

    credential: Credential | None = None
    """Credential, verified again while the connection is used; None without one."""
    headers: Headers | None = None
    """Headers of the request that opened the connection."""
    url_kwargs: Mapping[str, Any] | None = None
    """Arguments captured by the URL pattern."""
    make_request: Callable[[Principal], Any] | None = None
    """Callable that builds the Django request of the connection at its first use."""
    context: contextvars.Context | None = None
    """Context in which code of the project runs; None for an empty one.

    Each message gets a copy.
    """
    eras: frozenset[Era] = ALL_ERAS
    """Eras allowed on the connection."""
    network: NetworkInfo | None = None
    """Network of the connection; None within the process."""
    sends_pings: bool = False
    """True if pings are needed because the transport does not detect dead clients."""

    def create_connection(
        self,
        principal: Principal,
        calls: dict[jsonrpc.Id, Cancellable],
        subscriptions: dict[jsonrpc.Id, Subscription],
    ) -> Connection:
        """Create the connection object of the calls of an era.

        Both eras share the tables of calls and subscriptions.
        """
        connection = Connection(
            principal,
            headers=self.headers,
            url_kwargs=self.url_kwargs,
            make_request=self.make_request,
            shared_calls=calls,
            network=self.network,
        )
        connection.subscriptions = subscriptions
        return connection
