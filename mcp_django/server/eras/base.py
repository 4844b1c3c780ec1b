"""What an era decides: the shape of messages, how one becomes a call, how a result is dressed, how questions are
asked.
"""

from typing import Any, Protocol

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.revisions import Era as EraName
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.client_requests.conversation import Conversation, Replay


class Era(Protocol):
    """One era's strategy, for one server."""

    name: EraName

    def read(self, raw: Any, connection: Connection) -> jsonrpc.Message | list[Any]:
        """The message in a decoded body, or the list of a batch. Raises InvalidRequest for shapes the era does not
        know.
        """

    def open(self, message: jsonrpc.Request | jsonrpc.Notification, connection: Connection, outbox: Outbox) -> Call:
        """The call that a message is. Raises the MCPError that the era's envelope rules ask for."""

    def check(self, call: Call) -> None:
        """The shapes inside the envelope, once the method is known to exist. Raises InvalidParams."""

    def dress(self, call: Call, body: dict[str, Any], *, private: bool = True) -> dict[str, Any]:
        """Add to a complete result what the era's results carry. In place; returns it."""

    def suspend(self, call: Call, body: dict[str, Any]) -> dict[str, Any]:
        """Add to the end of a round what it carries. In place; returns it."""

    def status(self, problem: MCPError) -> int:
        """The HTTP status of an error."""

    def resume(self, call: Call) -> Replay | None:
        """The conversation that a retry continues; None when the call is a first one. Raises InvalidParams."""

    def conversation(self, call: Call) -> Conversation:
        """A conversation for the call's first question."""
