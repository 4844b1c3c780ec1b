"""Factory of the connections of a server."""

from mcp_django.conf.options import Limits
from mcp_django.runtime.shutdown import SHUTDOWN_MESSAGE
from mcp_django.server.ports import Executor, Overloaded, Principal
from mcp_django.transports.connection.connection import DuplexConnection
from mcp_django.transports.connection.dependencies import ConnectionDependencies
from mcp_django.transports.connection.options import ConnectionOptions


class ConnectionRegistry:
    """Opens the connections of one server, for all bidirectional transports."""

    def __init__(self, dependencies: ConnectionDependencies) -> None:
        self._dependencies = dependencies
        self.security = dependencies.security
        self.authenticator = dependencies.authenticator
        self.transports = dependencies.pipeline.server.options.transports
        """Transports enabled on the server."""

    @property
    def limits(self) -> Limits:
        """Limits of one connection."""
        return self._dependencies.limits

    @property
    def executor(self) -> Executor:
        """Executor of blocking functions."""
        return self._dependencies.pipeline.server.executor

    def open_connection(self, principal: Principal, options: ConnectionOptions | None = None) -> DuplexConnection:
        """Open a connection for `principal` on the running loop. Raises Overloaded."""
        dependencies = self._dependencies
        if dependencies.lifecycle.has_started_draining and dependencies.lifecycle.is_draining():
            raise Overloaded(SHUTDOWN_MESSAGE)
        dependencies.stream_limiter.acquire(principal.key)
        try:
            return DuplexConnection(dependencies, principal, options or ConnectionOptions())
        except BaseException:
            dependencies.stream_limiter.release(principal.key)
            raise
