"""Options of a client, and the protocol of its targets."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import mcp_types as types

from mcp_django.protocol.revisions import REVISIONS, Era, Revision

MessageStreams = tuple[Any, Any]
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The extension that every client declares in the stateless era."""


class ClientTarget(Protocol):
    """Address of a server: a target, or its replacement in a test."""

    def open(self) -> AbstractAsyncContextManager[MessageStreams]:
        """Open a new connection: the SDK's read stream and write stream of messages.

        May raise a ClientConnectionError with a message for people. Of other exceptions only the class is reported.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Connection and call options of a client."""

    protocol_version: str | None
    """A revision, "handshake" or "stateless"; None negotiates the revision."""
    client_info: types.Implementation
    max_retries: int
    """Maximum retries of a connection, and of a request that is safe to repeat."""
    startup_timeout: float
    """Seconds for one attempt to connect."""
    timeout: float | None
    """Seconds for one round of a call; None for no limit."""
    sampling_tools: bool
    """True if the sampling callback supports tools."""
    extensions: Mapping[str, Mapping[str, Any]] | None
    """Declared extensions, with their settings."""
    alias: str | None
    """The project's alias of the server, for logs and errors."""

    def __post_init__(self) -> None:
        if self.protocol_version is not None and self.protocol_version not in (*REVISIONS, *_ERAS_BY_NAME):
            known = ", ".join(map(repr, (*_ERAS_BY_NAME, *REVISIONS)))
            raise ValueError(f"protocol_version must be one of {known}, not {self.protocol_version!r}")
        if self.max_retries < 0:
            raise ValueError("max_retries must be 0 or more")
        if self.startup_timeout <= 0 or (self.timeout is not None and self.timeout <= 0):
            raise ValueError("startup_timeout and timeout must be more than 0 seconds")

    @property
    def eras(self) -> tuple[Era, ...]:
        """The eras to try, in order of preference."""
        if self.protocol_version is None:
            return (Era.STATELESS, Era.HANDSHAKE)
        return (_ERAS_BY_NAME.get(self.protocol_version) or REVISIONS[self.protocol_version].era,)

    @property
    def revision(self) -> Revision | None:
        """The only accepted revision, or None if several are accepted."""
        return REVISIONS.get(self.protocol_version or "")

    @property
    def server_label(self) -> str:
        """The server's name for the start of an error message."""
        return f"The server {self.alias!r}" if self.alias else "The server"


_ERAS_BY_NAME = {era.value: era for era in Era}
