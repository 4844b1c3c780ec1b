"""The ports of one server, and plain ones for those that it can do without."""

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError
from mcp_django.server.calls.background import BackgroundSlots, UnlimitedBackgroundSlots
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import (
    Authorizer,
    ChangeFeed,
    ElicitationPages,
    ExceptionTranslator,
    Executor,
    FormResolver,
    IdempotencyStore,
    ListDigestStore,
    Observer,
    Outcome,
    Overloaded,
    PendingRequests,
    Sealer,
    SessionStore,
    UnavailabilityReporter,
)


class InMemoryPendingRequests:
    """`PendingRequests` of a single process, without forwarding."""

    def new_id(self, session: ServerSession) -> str:
        return secrets.token_urlsafe(12)

    def is_valid_id(self, session: ServerSession, id: jsonrpc.Id) -> bool:
        return False

    def accept_forwarded(self, session: ServerSession) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def forward(self, session: ServerSession, response: jsonrpc.Response) -> None:
        return None


class NullListDigestStore:
    """`ListDigestStore` that stores nothing."""

    def save(self, session: ServerSession) -> None:
        return None

    async def load(self, session: ServerSession) -> Mapping[str, str]:
        return {}


class NullObserver:
    """`Observer` that observes nothing."""

    def observe(self, call: Call) -> None:
        return None

    def record_outcome(self, call: Call, outcome: Outcome, problem: MCPError | Overloaded | None) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of one server; `wiring` fills them."""

    authorizer: Authorizer[Any]
    executor: Executor
    sessions: SessionStore
    state_sealer: Sealer
    cursor_sealer: Sealer
    idempotency_store: IdempotencyStore
    translate_exception: ExceptionTranslator = lambda problem: None
    """Translator of a framework's exceptions."""
    report_unavailability: UnavailabilityReporter = lambda subject, problem: None
    """Reporter of failures of the storage."""
    observer: Observer = field(default_factory=NullObserver)
    resolve_form: FormResolver = lambda schema: None
    """Resolver of a framework's forms, for the schemas of elicitation."""
    elicitation_pages: ElicitationPages | None = None
    """Pages for URL elicitation, or None without a site."""
    pending_requests: PendingRequests = field(default_factory=InMemoryPendingRequests)
    list_digests: ListDigestStore = field(default_factory=NullListDigestStore)
    background: BackgroundSlots = field(default_factory=UnlimitedBackgroundSlots)
    """Limits of background work after the response."""
    add_shutdown_callback: Callable[[Callable[[], Awaitable[None]]], None] = lambda work: None
    """Function that registers a callback, awaited before the running loop ends."""
    change_feed: ChangeFeed | None = None
    """Feed of changes. With None the server offers no subscriptions."""
    required_scopes: Callable[[Connection], Collection[str]] = lambda connection: ()
    """Function that returns the scopes that every request on a connection requires."""
