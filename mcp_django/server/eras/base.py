"""The interface of an era: parsing, calls, result fields and client requests."""

from typing import Any, Protocol

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.revisions import Era as EraName
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.client_requests.conversation import ClientConversation, ReplayConversation


class EraStrategy(Protocol):
    """Strategy of one era for one server."""

    name: EraName

    def parse(self, raw: Any, connection: Connection) -> jsonrpc.Message | list[Any]:
        """Parse a decoded body into a message, or return the list of a batch.

        Raises InvalidRequest for a shape that the era does not allow.
        """

    def create_call(
        self, message: jsonrpc.Request | jsonrpc.Notification, connection: Connection, outbox: Outbox
    ) -> Call:
        """Create the call of a message. Raises MCPError by the era's envelope rules."""

    def check(self, call: Call) -> None:
        """Check the fields inside the envelope of a known method. Raises InvalidParams."""

    def add_result_fields(self, call: Call, body: dict[str, Any], *, private: bool = True) -> dict[str, Any]:
        """Add the era's fields to a complete result in place, and return it."""

    def add_round_fields(self, call: Call, body: dict[str, Any]) -> dict[str, Any]:
        """Add the era's fields to the result of a round, and return it."""

    def get_http_status(self, problem: MCPError) -> int:
        """Return the HTTP status of an error."""

    def resume_conversation(self, call: Call) -> ReplayConversation | None:
        """Return the conversation that a retry continues, or None for a first call.

        Raises InvalidParams.
        """

    def start_conversation(self, call: Call) -> ClientConversation:
        """Start a conversation for the call's first request to the client."""
