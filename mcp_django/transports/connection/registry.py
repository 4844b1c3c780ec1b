"""Factory of the connections of a server."""

from mcp_django.runtime.shutdown import CLOSING
from mcp_django.server.ports import Executor, Overloaded, Principal
from mcp_django.transports.connection.connection import Duplex
from mcp_django.transports.connection.dependencies import Shared
from mcp_django.transports.connection.options import DuplexLimits, Terms


class Duplexes:
    """Opens the connections of one server, for all bidirectional transports."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.guard, self.authenticator = shared.guard, shared.authenticator
        self.transports = shared.pipeline.server.options.transports
        """Transports enabled on the server."""

    @property
    def limits(self) -> DuplexLimits:
        """Limits of one connection."""
        return self._shared.limits

    @property
    def executor(self) -> Executor:
        """Executor of blocking functions."""
        return self._shared.pipeline.server.executor

    def open(self, principal: Principal, terms: Terms | None = None) -> Duplex:
        """Open a connection for `principal` on the running loop. Raises Overloaded."""
        shared = self._shared
        if shared.lifecycle.has_drained and shared.lifecycle.is_draining():
            raise Overloaded(CLOSING)
        shared.listens.enter(principal.key)
        try:
            return Duplex(shared, principal, terms or Terms())
        except BaseException:
            shared.listens.leave(principal.key)
            raise
