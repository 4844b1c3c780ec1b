"""Dependencies shared by the connections of a server."""

from collections.abc import Callable
from dataclasses import dataclass

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.session_stream import OwnStream
from mcp_django.runtime.subscriptions import Listens
from mcp_django.server.calls.session import Session
from mcp_django.server.pipeline import Pipeline
from mcp_django.transports.connection.options import DuplexLimits
from mcp_django.transports.connection.session import Keep
from mcp_django.transports.security import Guard
from mcp_django.transports.stream_registry import Listeners


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Dependencies shared by all connections of one server."""

    pipeline: Pipeline
    own: Callable[[Session], OwnStream]
    """Callable that creates the stream of a session."""
    keep: Keep
    listens: Listens
    """Counter of open connections."""
    lifecycle: Lifecycle
    limits: DuplexLimits
    open_ones: Listeners
    guard: Guard
    authenticator: Authenticator
