"""Errors raised by clients of other MCP servers.

    ClientError
    ├── ClientConnectionError      no connection, or the connection broke
    │   ├── AuthorizationNeeded    a person must authorize the server first
    │   └── HandshakeError         the server was reached, but negotiation failed
    ├── CallTimeout                no response within the time limit of the call
    ├── TaskCancelled              the task of the call was cancelled
    └── CallError                  the server responded with an error
        ├── TaskNotFound           unknown or expired task
        ├── ToolNotFound           unknown tool
        └── InvalidAnswer          the response violates the protocol

The text of a `CallError` comes from the other server, truncated. Errors never contain the project's URLs, headers or
credentials.
"""

from typing import Any

from mcp_django.protocol.display_text import clean_text

__all__ = [
    "AuthorizationNeeded",
    "CallError",
    "CallTimeout",
    "ClientConnectionError",
    "ClientError",
    "HandshakeError",
    "InvalidAnswer",
    "TaskCancelled",
    "TaskNotFound",
    "ToolNotFound",
]

MAX_TEXT_LENGTH = 2000
"""Maximum number of characters kept of another server's text."""
INTERNAL_ERROR = -32603
INVALID_PARAMS = -32602


class ClientError(Exception):
    """Base class of all client errors."""


class ClientConnectionError(ClientError):
    """A missing connection, or one that broke during a call.

    The outcome of an interrupted call is unknown.
    """


class HandshakeError(ClientConnectionError):
    """The server refused, or supports none of this client's protocol revisions."""


class AuthorizationNeeded(ClientConnectionError):
    """A person must authorize the server first.

    `url` is the page for it, `alias` the client's alias.
    """

    def __init__(self, message: str = "", alias: str | None = None, url: str | None = None) -> None:
        super().__init__(message or "This server has not been authorized yet.", alias, url)
        self.alias = alias
        self.url = url

    def __str__(self) -> str:
        return str(self.args[0])


class CallTimeout(ClientError):
    """A call without a response in time; the client sent a cancellation to the server."""


class TaskCancelled(ClientError):
    """A task that was cancelled, by its server or by another request."""

    def __init__(self, message: str = "The task was cancelled") -> None:
        super().__init__(message)


class CallError(ClientError):
    """An error response: `code`, truncated `message`, and optional `data`."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = clean_text(message, MAX_TEXT_LENGTH)
        self.data = data

    def __str__(self) -> str:
        return self.message


class ToolNotFound(CallError):
    """An unknown tool, or one hidden from this client."""

    def __init__(self, code: int = INVALID_PARAMS, message: str = "Unknown tool", data: Any = None) -> None:
        super().__init__(code, message, data)


class TaskNotFound(CallError):
    """A task that is unknown to its server, or has outlived its time to live."""

    def __init__(
        self,
        code: int = INVALID_PARAMS,
        message: str = "The task is unknown to the server, or has expired",
        data: Any = None,
    ) -> None:
        super().__init__(code, message, data)


class InvalidAnswer(CallError):
    """A response that violates the protocol or exceeds a limit of this client."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.args = (message, code, data)
