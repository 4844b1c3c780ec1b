"""One call: a message, and everything around it that the engine knows.

A `Connection` holds what the transport knows about the exchange, a `Call` what the era made of one message in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..protocol import jsonrpc
from ..protocol.errors import MissingClientCapability, ToolError
from ..protocol.headers import Headers
from ..protocol.revisions import Era, Revision
from .ports import Principal
from .session import Session
from .streams import Outbox

if TYPE_CHECKING:
    from .eras.base import Era as EraStrategy
    from .server import Server


class Connection:
    """One exchange with a client: an HTTP request, a socket, a pipe."""

    __slots__ = ("_make_request", "_request", "headers", "kwargs", "opened", "principal", "session")

    def __init__(
        self,
        principal: Principal,
        *,
        headers: Headers | None = None,
        session: Session | None = None,
        kwargs: Mapping[str, Any] | None = None,
        make_request: Callable[[Principal], Any] | None = None,
    ) -> None:
        self.principal = principal
        self.headers = headers
        """None where the transport has no headers: the header rules do not apply there."""
        self.session = session
        self.kwargs = kwargs
        """What the URL pattern captured."""
        self.opened: Session | None = None
        """The session that this exchange opened, for the transport to name to the client."""
        self._make_request = make_request
        self._request: Any = None

    @property
    def request(self) -> Any:
        """The Django request, made at its first use where the transport has none of its own; None without HTTP."""
        if self._request is None and self._make_request is not None:
            self._request = self._make_request(self.principal)
        return self._request


@dataclass(slots=True, eq=False)
class Call:
    """One request or notification under its revision. Treat it as immutable; middleware replaces it."""

    message: jsonrpc.Request | jsonrpc.Notification
    revision: Revision
    era: "EraStrategy"
    connection: Connection
    server: "Server"
    outbox: Outbox
    capabilities: dict[str, Any]
    """The client's, as the revision says: of this request, or of the handshake."""
    client_info: dict[str, Any]
    meta: dict[str, Any]
    log_level: str | None = None
    """The lowest level of log message that the client wants; None when it wants none."""
    cancelled: bool = field(default=False)
    """The client or the server gave this call up."""

    @property
    def id(self) -> jsonrpc.Id | None:
        """The request's id; None marks a notification."""
        return self.message.id if isinstance(self.message, jsonrpc.Request) else None

    @property
    def method(self) -> str:
        return self.message.method

    @property
    def params(self) -> dict[str, Any]:
        return self.message.params or {}

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def session(self) -> Session | None:
        return self.connection.session

    def supports(self, needed: Mapping[str, Any]) -> bool:
        """Did the client declare the capability object `needed`, down to its sub-modes?"""
        modes = needed.get("elicitation")
        if modes is not None and not self.revision.elicitation.issuperset(modes or {"form"}):
            return False
        return _covers(self.capabilities, needed)

    def require(self, needed: dict[str, Any]) -> None:
        """Raise unless the client declared `needed`: MissingClientCapability where clients declare it anew for each
        request, and so may mend it; else a ToolError.
        """
        if self.supports(needed):
            return
        if self.revision.era is Era.STATELESS:
            raise MissingClientCapability(needed)
        raise ToolError(f"The client does not support {_dotted(needed)}")


def _dotted(needed: Mapping[str, Any]) -> str:
    name, inner = next(iter(needed.items()))
    return f"{name}.{_dotted(inner)}" if inner else name


def _covers(declared: Any, needed: Mapping[str, Any]) -> bool:
    for name, inner in needed.items():
        have = declared.get(name) if type(declared) is dict else None
        if type(have) is not dict:
            return False
        # client/elicitation: an empty object means form mode, for the clients that knew no other.
        if name == "elicitation" and not have:
            have = {"form": {}}
        if not _covers(have, inner):
            return False
    return True
