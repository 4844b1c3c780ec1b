"""Dependencies shared by the connections of a server."""

from collections.abc import Callable
from dataclasses import dataclass

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.conf.options import Limits
from mcp_django.runtime.concurrency import StreamLimiter
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.session_stream import SessionStream
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.pipeline import Pipeline
from mcp_django.transports.connection.session import AddSessionStream
from mcp_django.transports.security import TransportSecurity
from mcp_django.transports.stream_registry import StreamRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDependencies:
    """Dependencies shared by all connections of one server."""

    pipeline: Pipeline
    create_session_stream: Callable[[ServerSession], SessionStream]
    """Callable that creates the stream of a session."""
    add_session_stream: AddSessionStream
    stream_limiter: StreamLimiter
    """Counter of open connections."""
    lifecycle: Lifecycle
    limits: Limits
    open_streams: StreamRegistry
    security: TransportSecurity
    authenticator: Authenticator
