"""The server: an endpoint's identity, its primitives, and its ports."""

import copy
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Unpack

from mcp_django.protocol.revisions import Era, Revision
from mcp_django.protocol.types import Implementation
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.client_requests.conversation import ConversationLimits
from mcp_django.server.composition.mounting import MountedServer
from mcp_django.server.composition.provider import Provider, sort_providers
from mcp_django.server.context.background import BackgroundSlots, UnlimitedBackgroundSlots
from mcp_django.server.execution.lists import PrimitiveLists
from mcp_django.server.execution.sampling_tools import OfferedTool, Toolbox
from mcp_django.server.lifespan import Lifespans
from mcp_django.server.middleware import Middleware
from mcp_django.server.ports import (
    Authorizer,
    ChangeFeed,
    ElicitationPages,
    ExceptionTranslator,
    Executor,
    FormResolver,
    IdempotencyStore,
    InMemoryPendingRequests,
    Lifespan,
    ListDigestStore,
    NullListDigestStore,
    NullObserver,
    Observer,
    PendingRequests,
    Sealer,
    SessionStore,
)
from mcp_django.server.primitives.decorators import (
    PrimitiveOptions,
    ResourceOptions,
    ToolOptions,
    register_completer,
    register_prompt,
    register_resource,
    register_tool,
)
from mcp_django.server.primitives.registry import CombinedRegistry, Kind, Registry
from mcp_django.server.primitives.toolset import Toolset, add_toolset
from mcp_django.server.subscriptions.filter import LIST_NOTIFICATIONS
from mcp_django.server.subscriptions.listen import ServerSubscriptions

BOTH_ERAS = (Era.HANDSHAKE, Era.STATELESS)
_NOTIFICATION_CAPABILITIES = frozenset({"listChanged", "logging", "subscribe"})
"""Capabilities, and members of capabilities, that consist of notifications."""


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


TRANSPORTS = ("http", "websocket", "sse", "stdio")
"""All transports: Streamable HTTP, WebSocket, HTTP+SSE and stdio."""


class NotifiedChanges(NamedTuple):
    """The changes that a server notifies clients of."""

    lists: frozenset[str]
    """Kinds of lists: "tools", "prompts", "resources"."""
    includes_resources: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of a server's behaviour."""

    require_session: bool = True
    """True if `initialize` opens a session, required later (handshake era)."""
    page_size: int | None = 100
    """Number of entries on one page of a list, or None for all."""
    timeout: float | None = None
    """Default time limit of a tool, prompt, resource or completion in seconds."""
    atomic: tuple[str, ...] = ()
    """Aliases of the databases on which a handler runs in a transaction by default."""
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
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """Capabilities added to the server's own, such as `experimental`.

    None as a value removes a capability and its methods.
    """
    expose_errors: bool = False
    """True to send the text of bugs to the client. For development."""
    raise_bugs: bool = False
    """True to raise bugs from the pipeline instead of sending an error.

    For tests that call a server in their process.
    """
    max_batch_messages: int = 50
    """Maximum number of messages in a batch."""
    max_subscriptions: int = 100
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


class Mountable(Protocol):
    """An object that can be mounted in a server: `providers.mounts.Mount`."""

    def create_part(self, host: "Server") -> "MountedServer":
        """Create the mounted server for `host`. Raises DeclarationError."""


class Server:
    """An MCP endpoint.

    `MCP["SERVERS"]` describes servers by alias. Tests and scripts may create their own. Its decorators (`@server.tool`)
    register on it alone and raise DeclarationError at once.
    """

    def __init__(
        self,
        name: str | Implementation,
        version: str = "0",
        *,
        alias: str = "default",
        instructions: str | None = None,
        eras: Sequence[Era] = BOTH_ERAS,
        registry: Registry | None = None,
        providers: Sequence[Provider] = (),
        toolsets: Sequence[Toolset] = (),
        middleware: Sequence[Middleware] = (),
        mounts: Sequence[Mountable] = (),
        proxies: Sequence[Provider] = (),
        lifespan: Lifespan | None = None,
        options: ServerOptions | None = None,
        ports: Ports | None = None,
    ) -> None:

        self.info = name if isinstance(name, Implementation) else Implementation(name, version)
        self.alias = alias
        self.instructions = instructions
        self.eras = tuple(eras)
        self.registry = registry if registry is not None else Registry(alias)
        self.providers = sort_providers((*providers, *proxies))
        self.middleware = tuple(middleware)
        self.options = options or ServerOptions()
        self._ports = ports

        for toolset in toolsets:
            add_toolset(self.registry, toolset)
        self.registry.run_deferred()
        self._host: Server | None = None
        self.parts: tuple[MountedServer, ...] = ()
        """The servers that are mounted in this one."""

        if mounts:
            self._mount(mounts)
        self.lifespan = Lifespans(None if lifespan is None else lambda: lifespan(self), self._inner_lifespans)
        self.has_lifespan = lifespan is not None or bool(self._inner_lifespans())

        self.listings = PrimitiveLists(self)
        self.subscriptions = ServerSubscriptions(self)
        self._offered_cache: tuple[int, frozenset[str]] = (-1, frozenset())

    def __repr__(self) -> str:
        return f"<Server {self.alias!r}: {self.info.name} {self.info.version}>"

    def _mount(self, mounts: Sequence[Mountable]) -> None:
        """Add the registered and provided primitives of the mounted servers.

        Raises DeclarationError.
        """
        self.parts = tuple(mount.create_part(self) for mount in mounts)
        self._check_toolsets_unique()
        combined = self.registry = CombinedRegistry(self.registry)
        for part in self.parts:
            part.server.set_host(self)
            part.copies = combined.link(part.server.registry, part.copy_registered).copies
        combined.mark_complete()
        self.providers = sort_providers(
            (*self.providers, *(provider for part in self.parts for provider in part.providers))
        )

    def _check_toolsets_unique(self) -> None:
        """Check that each toolset instance belongs to one server only.

        Raises DeclarationError. An instance holds the values that its lifespan opened, and a lifespan must be entered
        once.
        """
        owners: dict[int, Server] = {id(toolset): self for toolset in self.registry.toolsets}
        for part in self.parts:
            for toolset in part.server.registry.toolsets:
                if owners.setdefault(id(toolset), part.server) is not part.server:
                    text = (
                        "is a toolset instance that this server already has; mount its class, or a server that has it"
                    )
                    raise DeclarationError(f"{type(toolset).__qualname__}, {part.label}, {text}")

    def set_host(self, host: "Server") -> None:
        """Set the host server. Its ports are used unless this server has its own."""
        self._host = self._host or host

    def _inner_lifespans(self) -> list[Any]:
        mounted = [part.server.lifespan.enter_shared for part in self.parts if part.server.has_lifespan]
        return mounted + [t.lifespan for t in self.registry.toolsets if type(t).lifespan is not Toolset.lifespan]

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

    def bind(self, ports: Ports) -> "Server":
        """Replace the server's ports."""
        self._ports = ports
        self._reset_ports()
        return self

    def _reset_ports(self) -> None:
        for port in fields(Ports):
            vars(self).pop(port.name, None)
        self.listings = PrimitiveLists(self)
        for part in self.parts:
            if not part.server.is_bound:
                part.server._reset_ports()

    @cached_property
    def authorizer(self) -> Authorizer[Any]:
        return self.ports.authorizer

    @cached_property
    def executor(self) -> Executor:
        return self.ports.executor

    @cached_property
    def sessions(self) -> SessionStore:
        return self.ports.sessions

    @cached_property
    def state_sealer(self) -> Sealer:
        return self.ports.state_sealer

    @cached_property
    def cursor_sealer(self) -> Sealer:
        return self.ports.cursor_sealer

    @cached_property
    def observer(self) -> Observer:
        return self.ports.observer

    @cached_property
    def idempotency_store(self) -> IdempotencyStore:
        return self.ports.idempotency_store

    @cached_property
    def pending_requests(self) -> PendingRequests:
        return self.ports.pending_requests

    @cached_property
    def change_feed(self) -> ChangeFeed | None:
        return self.ports.change_feed

    @property
    def offered_capabilities(self) -> frozenset[str]:
        """Names of the capabilities that the server has primitives for, as on the wire."""
        version, offered = self._offered_cache
        if version != self.registry.version:
            offered = self._find_offered_capabilities()
            self._offered_cache = self.registry.version, offered
        return offered

    def _find_offered_capabilities(self) -> frozenset[str]:
        registry = self.registry
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
        return frozenset(offered.union(added) - {name for name, value in added.items() if value is None})

    def capabilities(self, revision: Revision, *, streams: bool = True) -> dict[str, Any]:
        """Return the capabilities declared to a client of `revision`.

        Without `streams`, the transport carries only responses, so capabilities that need notifications are left out.
        """
        declared: dict[str, Any] = {name: {} for name in sorted(self.offered_capabilities)}
        # Sessions receive list changes on their own GET streams only.
        if self.change_feed is not None and (revision.era is Era.STATELESS or self.options.enable_get):
            for name in LIST_NOTIFICATIONS:
                if name in declared:
                    declared[name] = {"listChanged": True, **({"subscribe": True} if name == "resources" else {})}

        for name, value in self.options.capabilities.items():
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

    def tool(self, fn: Any = None, *, name: str | None = None, **options: Unpack[ToolOptions]) -> Any:
        """Register a tool on this server only, like `mcp_django.tool`."""
        return register_tool(self.registry, fn, name, options)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Any:
        """Register a resource on this server only, like `mcp_django.resource`."""
        return register_resource(self.registry, uri, options)

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

    async def build_toolbox(self, call: Call, tools: Sequence[OfferedTool]) -> Toolbox:
        """Build the set of `tools` that the client's model may use in a sampling request."""
        return await Toolbox.build(call, tools)

    def copy_with_options(self, **changes: Any) -> "Server":
        """Return a copy of the server with other options, but the same registry and ports."""
        other = copy.copy(self)
        return other.set_options(**changes)

    def set_options(self, **changes: Any) -> "Server":
        """Change options in place. For tests and scripts."""
        self.options = replace(self.options, **changes)
        self.listings = PrimitiveLists(self)
        self._offered_cache = (-1, frozenset())
        return self
