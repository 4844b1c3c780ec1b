"""What can go wrong between this project and another server.

    ClientError
    ├── ClientConnectionError      there is no connection, or it broke
    │   ├── AuthorizationNeeded    a person has to allow it first
    │   └── HandshakeError         the server is there, and they cannot agree
    ├── CallTimeout                no answer within the time that the call has
    └── CallError                  the server answered with an error
        ├── ToolNotFound           it has no tool of this name
        └── InvalidAnswer          what it sent is not what the protocol says

A `CallError` has the text of the other server, cut to size. No error has URLs, headers or credentials of ours in it.
"""

from typing import Any

__all__ = [
    "AuthorizationNeeded",
    "CallError",
    "CallTimeout",
    "ClientConnectionError",
    "ClientError",
    "HandshakeError",
    "InvalidAnswer",
    "ToolNotFound",
]

MAX_TEXT = 2000
"""Characters of another server's text that an error keeps."""
INTERNAL_ERROR = -32603
INVALID_PARAMS = -32602


class ClientError(Exception):
    """Something went wrong with another server. All errors of a client are of this kind."""


class ClientConnectionError(ClientError):
    """There is no connection to the server, or it broke while a call was under way.

    Whether a call that was under way has been carried out is not known.
    """


class HandshakeError(ClientConnectionError):
    """The server was reached and refused, or speaks no revision of the protocol that this client speaks."""


class AuthorizationNeeded(ClientConnectionError):
    """The server wants a person's permission first: `url` is where to give it, `alias` the client's name."""

    def __init__(self, message: str = "", alias: str | None = None, url: str | None = None) -> None:
        super().__init__(message or "This server has not been allowed yet.", alias, url)
        self.alias, self.url = alias, url

    def __str__(self) -> str:
        return str(self.args[0])


class CallTimeout(ClientError):
    """No answer came within the time that the call has; the server was told to stop."""


class CallError(ClientError):
    """The server answered with an error: its `code`, its `message`, cut to size, and its `data`, if any."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code, self.message, self.data = code, legible(message), data

    def __str__(self) -> str:
        return self.message


class ToolNotFound(CallError):
    """The server has no tool of this name, or shows none to this client."""

    def __init__(self, code: int = INVALID_PARAMS, message: str = "Unknown tool", data: Any = None) -> None:
        super().__init__(code, message, data)


class InvalidAnswer(CallError):
    """What the server sent is not what the protocol says, or more than this client takes."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.args = (message, code, data)


def legible(text: str) -> str:
    """Another server's text without control characters, in one piece of bounded length."""
    cut = text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
    return "".join(character if character.isprintable() or character == "\n" else " " for character in cut)
