"""Private names and texts of the official SDK that this client relies on.

The SDK promises none of them. Only this module uses them, a test checks each of them, and the upper bound of the
package `mcp` excludes releases that were not checked.
"""

from typing import Final

import httpx2
import mcp_types as types
from mcp import MCPError
from mcp.client._transport import TransportStreams as Streams
from mcp.client.auth import OAuthClientProvider

__all__ = [
    "CONNECTION_CLOSED_TEXT",
    "DROPPED_LOG_PREFIXES",
    "LIBRARY_LOGGERS",
    "PRIVATE_NAMES",
    "BaseOAuthProvider",
    "Streams",
    "is_closed",
    "is_lost",
    "is_terminated",
]

PRIVATE_NAMES: Final = (
    "mcp.client._transport.TransportStreams",
    "mcp.client.auth.oauth2.OAuthClientProvider._perform_authorization",
    "mcp.client.auth.oauth2.OAuthClientProvider._select_authorization_server",
)
"""Private names that are used or replaced here."""
CONNECTION_CLOSED_TEXT: Final = "Connection closed"
"""Text of the error for calls whose connection has ended."""
STREAM_LOST_PREFIX: Final = "SSE stream"
"""Start of the texts for a stream that ended without the response, on an open connection."""
SESSION_TERMINATED_TEXT: Final = "Session terminated"
"""Text in place of an HTTP 404 to a request with a session."""
LIBRARY_LOGGERS: Final = ("httpx2", "httpcore2.http11", "httpcore2.http2", "mcp.client.streamable_http")
"""Loggers that write URLs, response headers or session IDs."""
DROPPED_LOG_PREFIXES: Final = ("Received session ID", "receive_response_headers.complete")
"""Starts of the log messages with a session ID or response headers."""


def is_lost(error: MCPError) -> bool:
    """Return True if the connection or stream ended before the server responded."""
    is_local = error.code == types.CONNECTION_CLOSED
    return is_local and error.message.startswith((CONNECTION_CLOSED_TEXT, STREAM_LOST_PREFIX))


def is_closed(error: MCPError) -> bool:
    """Return True if the whole connection ended."""
    return error.code == types.CONNECTION_CLOSED and error.message == CONNECTION_CLOSED_TEXT


def is_terminated(error: MCPError) -> bool:
    """Return True if the server no longer has the session."""
    return error.code == types.INVALID_REQUEST and error.message == SESSION_TERMINATED_TEXT


class BaseOAuthProvider(OAuthClientProvider):
    """The SDK's provider with public names for its private hooks.

    Subclasses may combine it with other providers of the SDK, after it.
    """

    def _select_authorization_server(self, advertised: list[str]) -> str:
        return self.select_authorization_server(advertised)

    def select_authorization_server(self, advertised: list[str]) -> str:
        """Return the authorization server to use, of those that the resource names."""
        return super()._select_authorization_server(advertised)

    async def _perform_authorization(self) -> httpx2.Request:
        return await self.build_token_request()

    async def build_token_request(self) -> httpx2.Request:
        """Return the request that ends the flow, after the discovery and the registration."""
        return await super()._perform_authorization()
