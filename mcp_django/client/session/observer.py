"""Observer interface for the life cycle of a client."""

from mcp_django.client.errors import ClientError
from mcp_django.client.session.session import ClientConnection


class ClientObserver:
    """Observer of a client's connection and requests.

    Methods run on its loop; these do nothing.
    """

    def before_connect(self) -> None:
        """Called before connecting. Raise ClientError to fail the call without an attempt."""

    def on_connected(self, connection: ClientConnection) -> None:
        """Called when a connection is ready for use."""

    def on_disconnected(self) -> None:
        """Called when a ready connection has ended."""

    def on_connect_failed(self, error: ClientError) -> None:
        """Called when connecting failed without a further attempt; waiting calls fail."""

    def on_request_started(self) -> None:
        """Called at the start of a round of a call."""

    def on_request_finished(self, seconds: float, error: BaseException | None) -> None:
        """Called at the end of a round with its seconds, and its error or None."""
