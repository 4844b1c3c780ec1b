"""A request and its answer, whichever way they go: over HTTP, or to a view of this project."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp_django.contrib.openapi.requests.parameters import Pairs
from mcp_django.contrib.openapi.requests.request_body import Content
from mcp_django.server.context.context import Context


@dataclass(frozen=True, slots=True, repr=False)
class Outgoing:
    """A request. It may hold credentials, so it does not show what it holds."""

    method: str
    path: str
    """Encoded, below the base URL: "/pets/a%2Fb"."""
    query: Sequence[tuple[str, str]] = ()
    """Encoded names and values."""
    headers: Sequence[tuple[str, str]] = ()
    cookies: Pairs = field(default_factory=list)
    """Encoded values."""
    body: Content = field(default_factory=Content)
    arguments: Mapping[str, str] = field(default_factory=dict)
    """What the path was filled with, not encoded."""
    timeout: float | None = None
    """Seconds that it may take; None for as long as all may."""

    @property
    def query_string(self) -> str:
        return "&".join(f"{name}={value}" for name, value in self.query)

    @property
    def cookie_line(self) -> str:
        """The header Cookie; "" without cookies."""
        return "; ".join(f"{name}={value}" for name, value in self.cookies)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer in full."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""

    def header(self, name: str) -> str:
        return self.headers.get(name, "")


class Transport(Protocol):
    """A way for requests."""

    is_remote: bool
    """Does it lead out of this process?"""

    async def send(self, request: Outgoing, ctx: Context) -> Reply:
        """The answer, whatever its status. Raises ToolError, in words for the model, where there is none."""

    async def open(self) -> Any:
        """Called on each event loop that requests come from."""

    async def close(self) -> None:
        """The loop serves no more calls."""
