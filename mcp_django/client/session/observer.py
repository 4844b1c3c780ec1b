"""Observer interface for the life cycle of a client."""

from mcp_django.client.errors import ClientError
from mcp_django.client.session.session import Connection


class Watcher:
    """Observer of a client's connection and requests.

    Methods run on its loop; these do nothing.
    """

    def admit(self) -> None:
        """Called before connecting. Raise ClientError to fail the call without an attempt."""

    def connected(self, connection: Connection) -> None:
        """Called when a connection is ready for use."""

    def disconnected(self) -> None:
        """Called when a ready connection has ended."""

    def failed(self, error: ClientError) -> None:
        """Called when connecting failed without a further attempt; waiting calls fail."""

    def began(self) -> None:
        """Called at the start of a round of a call."""

    def ended(self, seconds: float, error: BaseException | None) -> None:
        """Called at the end of a round with its seconds, and its error or None."""
