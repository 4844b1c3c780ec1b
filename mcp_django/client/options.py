"""What a client was told when it was made, and the protocol of a target."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import mcp_types as types

from mcp_django.protocol.revisions import REVISIONS, Era, Revision

STREAMS = tuple[Any, Any]


class Openable(Protocol):
    """Where a server is, and how it is reached: a target, or what a test has in its place."""

    def open(self) -> AbstractAsyncContextManager[STREAMS]:
        """A new connection: the SDK's stream of messages to read, and its stream to write to.

        May raise a ClientConnectionError, whose text people will read; of anything else they see only the kind.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a client connects and calls."""

    protocol_version: str | None
    """A revision, "handshake" or "stateless"; None finds out what the server speaks."""
    client_info: types.Implementation
    max_retries: int
    """How often a connection, or a call that may be repeated, is tried again."""
    startup_timeout: float
    """Seconds for one attempt to connect."""
    timeout: float | None
    """Seconds for one round of a call; None for no limit."""
    sampling_tools: bool
    """Does the answerer of sampling know tools?"""
    extensions: Mapping[str, Mapping[str, Any]] | None
    """Extensions that the client declares, and their settings."""
    alias: str | None
    """What the project calls the server, for logs and errors."""

    def __post_init__(self) -> None:
        if self.protocol_version is not None and self.protocol_version not in (*REVISIONS, *_ERAS):
            known = ", ".join(map(repr, (*_ERAS, *REVISIONS)))
            raise ValueError(f"protocol_version is one of {known}, not {self.protocol_version!r}")
        if self.max_retries < 0:
            raise ValueError("max_retries is 0 or more")
        if self.startup_timeout <= 0 or (self.timeout is not None and self.timeout <= 0):
            raise ValueError("startup_timeout and timeout are seconds, more than 0")

    @property
    def eras(self) -> tuple[Era, ...]:
        """The eras in which the client may speak, the one to try first in front."""
        if self.protocol_version is None:
            return (Era.STATELESS, Era.HANDSHAKE)
        return (_ERAS.get(self.protocol_version) or REVISIONS[self.protocol_version].era,)

    @property
    def revision(self) -> Revision | None:
        """The one revision that is spoken, if there is only one."""
        return REVISIONS.get(self.protocol_version or "")

    @property
    def name(self) -> str:
        """What to call the server in a sentence."""
        return f"The server {self.alias!r}" if self.alias else "The server"


_ERAS = {era.value: era for era in Era}
