"""Core of a server: its identity, options, registration and ports, as its calls need them.

`server.Server` completes it with providers, mounts, lists and subscriptions.
"""

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.protocol.types import Implementation
from mcp_django.server.calls.background import BackgroundSlots, UnlimitedBackgroundSlots
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.lifespan import Lifespans
from mcp_django.server.options import ServerOptions
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
from mcp_django.server.primitives.base import MountView, Primitive
from mcp_django.server.primitives.decorators import (
    PrimitiveOptions,
    ResourceOptions,
    ToolOptions,
    register_completer,
    register_prompt,
    register_resource,
    register_tool,
)
from mcp_django.server.primitives.registry import Kind, Registry

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call, Connection, Middleware

LIST_NOTIFICATIONS = {kind: f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}
"""Kind of list to the notification of its changes."""
_NOTIFICATION_CAPABILITIES = frozenset({"listChanged", "logging", "subscribe"})
"""Capabilities, and members of capabilities, that consist of notifications."""


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

    def observe(self, call: object) -> None:
        return None

    def record_outcome(self, call: object, outcome: Outcome, problem: MCPError | Overloaded | None) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of one server; `wiring` fills them."""

    authorizer: Authorizer[Any, Primitive]
    executor: Executor
    sessions: SessionStore[ServerSession]
    state_sealer: Sealer
    cursor_sealer: Sealer
    idempotency_store: IdempotencyStore
    translate_exception: ExceptionTranslator = lambda problem: None
    """Translator of a framework's exceptions."""
    report_unavailability: UnavailabilityReporter = lambda subject, problem: None
    """Reporter of failures of the storage."""
    observer: "Observer[Call]" = field(default_factory=NullObserver)
    resolve_form: FormResolver = lambda schema: None
    """Resolver of a framework's forms, for the schemas of elicitation."""
    elicitation_pages: "ElicitationPages[Call] | None" = None
    """Pages for URL elicitation, or None without a site."""
    pending_requests: PendingRequests[ServerSession] = field(default_factory=InMemoryPendingRequests)
    list_digests: ListDigestStore[ServerSession] = field(default_factory=NullListDigestStore)
    background: BackgroundSlots = field(default_factory=UnlimitedBackgroundSlots)
    """Limits of background work after the response."""
    add_shutdown_callback: Callable[[Callable[[], Awaitable[None]]], None] = lambda work: None
    """Function that registers a callback, awaited before the running loop ends."""
    change_feed: "ChangeFeed[Call] | None" = None
    """Feed of changes. With None the server offers no subscriptions."""
    required_scopes: "Callable[[Connection], Collection[str]]" = lambda connection: ()
    """Function that returns the scopes that every request on a connection requires."""


class NotifiedChanges(NamedTuple):
    """The changes that a server notifies clients of."""

    lists: frozenset[str]
    """Kinds of lists: "tools", "prompts", "resources"."""
    includes_resources: bool


class ServerCore:
    """Part of a server that its calls use."""

    alias: str
    info: Implementation
    instructions: str | None
    eras: tuple[Era, ...]
    options: ServerOptions
    registry: Registry
    lifespan: Lifespans
    has_lifespan: bool
    middleware: "Sequence[Middleware]"
    around: tuple[Any, ...]
    """Functions whose context managers surround handlers: `context.around.Around` objects."""
    extensions: Any
    """Protocol extensions: an `ExtensionRegistry`."""
    parts: tuple[MountView, ...]
    """The servers that are mounted in this one."""
    providers: Sequence[Any]
    """Providers of primitives: `composition.provider.Provider` objects."""
    listings: Any
    """Lists of primitives: a `PrimitiveLists` object."""
    subscriptions: Any
    """Open subscriptions: a `ServerSubscriptions` object."""
    _ports: Ports | None
    _host: "ServerCore | None"
    _offered_cache: tuple[int, frozenset[str]]

    def tool(self, fn: Any = None, *, name: str | None = None, **options: Unpack[ToolOptions]) -> Any:
        """Register a tool on this server only, like `mcp_django.tool`."""
        return register_tool(self.registry, fn, name, options)

    def resource(self, uri: str, *name_and_description: str, **options: Unpack[ResourceOptions]) -> Any:
        """Register a resource on this server only, like `mcp_django.resource`."""
        return register_resource(self.registry, uri, options, *name_and_description)

    def prompt(self, fn: Any = None, *, name: str | None = None, **options: Unpack[PrimitiveOptions]) -> Any:
        """Register a prompt on this server only, like `mcp_django.prompt`."""
        return register_prompt(self.registry, fn, name, options)

    def completion(
        self, target: str, argument: str, *, atomic: bool | str | Sequence[str] | None = None
    ) -> Callable[[Any], Any]:
        """Register a completion on this server only, like `mcp_django.completion`."""
        decorator: Callable[[Any], Any] = register_completer(self.registry, target, argument, atomic)
        return decorator

    def remove(self, kind: Kind, key: str) -> bool:
        """Remove a registered primitive and its completions.

        Returns False if it is unknown. `key` is the name of a tool or prompt, the URI of a resource, or the text of a
        template. Listening clients are notified of the list change. Like registration, removal concerns this process
        only. Use a Provider for lists that all workers must share.
        """
        return self.registry.remove(kind, key)

    async def build_toolbox(self, call: "Call", tools: Sequence[Any]) -> Any:
        """Build the set of `tools` that the client's model may use in a sampling request."""
        raise NotImplementedError

    def has_provider_for(self, capability: str) -> bool:
        """Return True if a provider offers the capability."""
        return any(capability in provider.offers for provider in self.providers)

    @property
    def ports(self) -> Ports:
        if self._ports is None and self._host is not None:
            return self._host.ports
        if self._ports is None:
            raise RuntimeError(f"{self!r} has no ports; mount it in another server, or create it with ports=")
        return self._ports

    @property
    def is_bound(self) -> bool:
        """True if the server has ports of its own."""
        return self._ports is not None

    def set_host(self, host: "ServerCore") -> None:
        """Set the host server. Its ports are used unless this server has its own."""
        self._host = self._host or host

    def bind(self, ports: Ports) -> Self:
        """Replace the server's ports."""
        self._ports = ports
        self._reset_ports()
        return self

    def _reset_ports(self) -> None:
        for port in fields(Ports):
            vars(self).pop(port.name, None)
        for part in self.parts:
            if not part.server.is_bound:
                part.server._reset_ports()

    authorizer = cached_property[Authorizer[Any, Primitive]](attrgetter("ports.authorizer"))
    executor = cached_property[Executor](attrgetter("ports.executor"))
    sessions = cached_property[SessionStore[ServerSession]](attrgetter("ports.sessions"))
    state_sealer = cached_property[Sealer](attrgetter("ports.state_sealer"))
    cursor_sealer = cached_property[Sealer](attrgetter("ports.cursor_sealer"))
    observer = cached_property["Observer[Call]"](attrgetter("ports.observer"))
    idempotency_store = cached_property[IdempotencyStore](attrgetter("ports.idempotency_store"))
    pending_requests = cached_property[PendingRequests[ServerSession]](attrgetter("ports.pending_requests"))
    change_feed = cached_property["ChangeFeed[Call] | None"](attrgetter("ports.change_feed"))

    @property
    def offered_capabilities(self) -> frozenset[str]:
        """Names of the capabilities that the server has primitives for, as on the wire."""
        version, known = self._offered_cache
        registry = self.registry
        if version == registry.version:
            return known

        offered = {name for provider in self.providers for name in provider.offers} | {"logging"}

        if len(registry.tools):
            offered.add("tools")
        if len(registry.resources) or len(registry.templates):
            offered.add("resources")
        if len(registry.prompts):
            offered.add("prompts")
        if registry.completers:
            offered.add("completions")

        added = self.options.capabilities
        known = frozenset(offered.union(added) - {name for name, value in added.items() if value is None})
        self._offered_cache = registry.version, known
        return known

    def capabilities(self, revision: Revision, *, streams: bool = True) -> JSONObject:
        """Return the capabilities declared to a client of `revision`.

        Without `streams`, the transport carries only responses, so capabilities that need notifications are left out.
        """
        declared: JSONObject = {name: {} for name in sorted(self.offered_capabilities)}
        # Sessions receive list changes on their own GET streams only.
        if self.change_feed is not None and (revision.era is Era.STATELESS or self.options.enable_get):
            for name in LIST_NOTIFICATIONS:
                if name in declared:
                    declared[name] = {"listChanged": True, **({"subscribe": True} if name == "resources" else {})}

        for added in (*self.extensions.get_capabilities(revision), self.options.capabilities):
            for name, value in added.items():
                if value is not None:
                    declared[name] = {**declared.get(name, {}), **value}

        if not streams:
            declared = {
                name: {key: inner for key, inner in value.items() if key not in _NOTIFICATION_CAPABILITIES}
                for name, value in declared.items()
                if name not in _NOTIFICATION_CAPABILITIES
            }
        return revision.shape_capabilities(declared)

    def get_notified_changes(self, revision: Revision, *, streams: bool = True) -> NotifiedChanges:
        """Return the changes that clients of `revision` are notified of.

        They are the declared ones, and none without `streams`.
        """
        declared = self.capabilities(revision, streams=streams) if self.change_feed is not None else {}
        lists = frozenset(kind for kind in LIST_NOTIFICATIONS if declared.get(kind, {}).get("listChanged"))
        return NotifiedChanges(lists, bool(declared.get("resources", {}).get("subscribe")))
