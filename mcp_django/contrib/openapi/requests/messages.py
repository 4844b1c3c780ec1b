"""Requests of operations, and the interface of their transports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp_django.contrib.http_tools.parameters import Pairs
from mcp_django.contrib.http_tools.replies import OperationReply
from mcp_django.extensions.calls import Context
from mcp_django.extensions.internal_requests import RequestContent


@dataclass(frozen=True, slots=True, repr=False)
class OperationRequest:
    """A request. Its `repr` is disabled because it may contain credentials."""

    method: str
    path: str
    """Encoded path below the base URL: "/pets/a%2Fb"."""
    query: Sequence[tuple[str, str]] = ()
    """Encoded pairs of names and values."""
    headers: Sequence[tuple[str, str]] = ()
    cookies: Pairs = field(default_factory=list)
    """Pairs with encoded values."""
    body: RequestContent = field(default_factory=RequestContent)
    path_arguments: Mapping[str, str] = field(default_factory=dict)
    """Path arguments by name, not encoded."""
    timeout: float | None = None
    """Seconds for this request; None for the transport's default."""

    @property
    def query_string(self) -> str:
        return "&".join(f"{name}={value}" for name, value in self.query)

    @property
    def cookie_header(self) -> str:
        """Value of the header Cookie; "" without cookies."""
        return "; ".join(f"{name}={value}" for name, value in self.cookies)


class OperationTransport(Protocol):
    """Sends requests of operations."""

    is_remote: bool
    """True if requests leave this process."""

    async def send(self, request: OperationRequest, ctx: Context) -> OperationReply:
        """Send a request and return the reply with any status.

        Raises ToolError, with a text for the model, if there was no reply.
        """

    async def open(self) -> Any:
        """Prepare for requests; called on each event loop."""

    async def close(self) -> None:
        """Release the resources of the running loop."""
