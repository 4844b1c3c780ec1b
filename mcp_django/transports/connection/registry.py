"""The channels of a server."""

from mcp_django.runtime.shutdown import CLOSING
from mcp_django.server.ports import Executor, Overloaded, Principal
from mcp_django.transports.connection.connection import Duplex
from mcp_django.transports.connection.dependencies import Shared
from mcp_django.transports.connection.options import DuplexLimits, Terms


class Duplexes:
    """Opens the channels of one server, whatever transport they are for."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.guard, self.authenticator = shared.guard, shared.authenticator
        self.transports = shared.pipeline.server.options.transports
        """Those that the server has."""

    @property
    def limits(self) -> DuplexLimits:
        """What one channel may take."""
        return self._shared.limits

    @property
    def executor(self) -> Executor:
        """Where what blocks runs."""
        return self._shared.pipeline.server.executor

    def open(self, principal: Principal, terms: Terms | None = None) -> Duplex:
        """A channel for `principal`, on the running loop. Raises Overloaded."""
        shared = self._shared
        if shared.lifecycle.has_drained and shared.lifecycle.is_draining():
            raise Overloaded(CLOSING)
        shared.listens.enter(principal.key)
        try:
            return Duplex(shared, principal, terms or Terms())
        except BaseException:
            shared.listens.leave(principal.key)
            raise
