"""What the life of a client looks like to those who keep it."""

from mcp_django.client.errors import ClientError
from mcp_django.client.session.session import Connection


class Watcher:
    """Told of what happens to a client, on its loop. This one lets everything be."""

    def admit(self) -> None:
        """A connection is wanted and there is none. Raises ClientError to have the call fail without an attempt."""

    def connected(self, connection: Connection) -> None:
        """A connection can be used."""

    def disconnected(self) -> None:
        """The connection that could be used has ended."""

    def failed(self, error: ClientError) -> None:
        """There is no connection, and no further attempt for those who wait."""

    def began(self) -> None:
        """A round of a call begins."""

    def ended(self, seconds: float, error: BaseException | None) -> None:
        """It ended, after so many seconds: with an answer, or with this error."""
