"""Options of a server's behaviour.

The defaults of the settings with the same names are those of these classes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from mcp_django.protocol.jsonrpc import JSONMapping

TRANSPORTS = ("http", "websocket", "sse", "stdio")
"""All transports: Streamable HTTP, WebSocket, HTTP+SSE and stdio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationLimits:
    """Limits of one conversation."""

    elicitation_timeout: float = 600.0
    """Seconds that a request waits for its response in the handshake era."""
    url_elicitation_timeout: float = 60.0
    """Seconds that a round waits in the stateless era for a user to finish a page."""
    answers: int = 64
    """Maximum number of responses of the client."""
    rounds: int = 32
    """Maximum number of rounds in the stateless era."""
    stale_rounds: int = 3
    """Maximum number of consecutive rounds in which the handler uses no new response."""
    state_ttl: float = 3600.0
    """Seconds that a client may take for one round in the stateless era."""

    @property
    def max_state_seconds(self) -> float:
        """Seconds after which no state of the conversation is valid, with all extensions."""
        return self.state_ttl * (self.rounds + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of a server's behaviour."""

    require_session: bool = True
    """True if `initialize` opens a session, required later (handshake era)."""
    page_size: int | None = 1000
    """Number of entries on one page of a list, or None for all."""
    timeout: float | None = None
    """Default time limit of a tool, prompt, resource or completion in seconds."""
    atomic: tuple[str, ...] = ()
    """Aliases of the databases on which a handler runs in a transaction by default."""
    around: tuple[Callable[..., object], ...] = ()
    """Functions of the Context whose context managers surround handlers, outermost first."""
    log_level: str | None = "info"
    """Lowest level of log messages for a session that has set none.

    None sends no messages.
    """
    cache_ttl: float = 60.0
    """Seconds for which a client may cache a list (server/utilities/caching)."""
    private_lists: bool = False
    """True if every list is private to its caller.

    Set where callers are authenticated.
    """
    capabilities: JSONMapping = field(default_factory=dict)
    """Capabilities added to the server's own, such as `experimental`.

    None as a value removes a capability and its methods.
    """
    expose_errors: bool = False
    """True to send the text of bugs to the client. For development."""
    raise_bugs: bool = False
    """True to raise bugs from the pipeline instead of sending an error.

    For tests that call a server in their process.
    """
    result_bytes: int = 4 * 1024 * 1024
    """Maximum size of a result in bytes, for tools without a limit of their own."""
    subscriptions: int = 100
    """Maximum number of subscribed resources of a session, or of a stateless stream."""
    conversation_limits: ConversationLimits = field(default_factory=ConversationLimits)
    enable_get: bool = True
    """True if clients with a session may open a GET stream, and resume a lost one."""
    allow_delete: bool = True
    """True if clients may end their session with DELETE."""
    transports: tuple[str, ...] = TRANSPORTS
    """Enabled transports, of `TRANSPORTS`."""
    healthz: bool = False
    """True to answer GET at "<path>/healthz" where the server is mounted."""
