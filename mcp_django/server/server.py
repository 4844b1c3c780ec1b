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
from mcp_django.server.client_requests.conversation import AskLimits
from mcp_django.server.composition.mounting import Part
from mcp_django.server.composition.provider import Provider, in_order
from mcp_django.server.context.background import Places, Unlimited
from mcp_django.server.execution.lists import Listings
from mcp_django.server.execution.sampling_tools import Offered, Toolbox
from mcp_django.server.lifespan import Lifespans
from mcp_django.server.middleware import Middleware
from mcp_django.server.ports import (
    Authorizer,
    Changes,
    ExceptionTable,
    Executor,
    Forgetful,
    FormTable,
    InProcess,
    Ledger,
    Lifespan,
    ListMemory,
    Observer,
    Pages,
    Replies,
    Sealer,
    SessionStore,
    Unobserved,
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
from mcp_django.server.primitives.registry import Joint, Kind, Registry
from mcp_django.server.primitives.toolset import Toolset, add_toolset
from mcp_django.server.subscriptions.filter import LISTS
from mcp_django.server.subscriptions.listen import Subscriptions

BOTH = (Era.HANDSHAKE, Era.STATELESS)
_NOTIFYING = frozenset({"listChanged", "logging", "subscribe"})
"""Capabilities, and members of capabilities, that consist of notifications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of one server; `wiring` fills them."""

    authorizer: Authorizer
    executor: Executor
    sessions: SessionStore
    state_sealer: Sealer
    cursor_sealer: Sealer
    ledger: Ledger
    translate: ExceptionTable = lambda problem: None
    """Translator of a framework's exceptions."""
    observer: Observer = field(default_factory=Unobserved)
    forms: FormTable = lambda schema: None
    """Resolver of a framework's forms, for the schemas of elicitation."""
    pages: Pages | None = None
    """Pages for URL elicitation, or None without a site."""
    replies: Replies = field(default_factory=InProcess)
    lists: ListMemory = field(default_factory=Forgetful)
    background: Places = field(default_factory=Unlimited)
    """Limits of background work after the response."""
    at_end: Callable[[Callable[[], Awaitable[None]]], None] = lambda work: None
    """Function that registers a callback, awaited before the running loop ends."""
    changes: Changes | None = None
    """Feed of changes. With None the server offers no subscriptions."""
    required_scopes: Callable[[Connection], Collection[str]] = lambda connection: ()
    """Function that returns the scopes that every request on a connection requires."""


TRANSPORTS = ("http", "websocket", "sse", "stdio")
"""All transports: Streamable HTTP, WebSocket, HTTP+SSE and stdio."""


class Notified(NamedTuple):
    """The changes that a server notifies clients of."""

    lists: frozenset[str]
    """Kinds of lists: "tools", "prompts", "resources"."""
    resources: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
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
    private: bool = False
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
    batch: int = 50
    """Maximum number of messages in a batch."""
    subscriptions: int = 100
    """Maximum number of subscribed resources of a session, or of a stateless stream."""
    ask: AskLimits = field(default_factory=AskLimits)
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

    def part(self, host: "Server") -> "Part":
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
        eras: Sequence[Era] = BOTH,
        registry: Registry | None = None,
        providers: Sequence[Provider] = (),
        toolsets: Sequence[Toolset] = (),
        middleware: Sequence[Middleware] = (),
        mounts: Sequence[Mountable] = (),
        proxies: Sequence[Provider] = (),
        lifespan: Lifespan | None = None,
        options: Options | None = None,
        ports: Ports | None = None,
    ) -> None:

        self.info = name if isinstance(name, Implementation) else Implementation(name, version)
        self.alias, self.instructions, self.eras = alias, instructions, tuple(eras)
        self.registry = registry if registry is not None else Registry(alias)
        self.providers = in_order((*providers, *proxies))
        self.middleware = tuple(middleware)
        self.options = options or Options()
        self._ports = ports

        for toolset in toolsets:
            add_toolset(self.registry, toolset)
        self.registry.settle()
        self._host: Server | None = None
        self.parts: tuple[Part, ...] = ()
        """The servers that are mounted in this one."""

        if mounts:
            self._mount(mounts)
        self.lifespan = Lifespans(None if lifespan is None else lambda: lifespan(self), self._inner_lifespans)
        self.has_lifespan = lifespan is not None or bool(self._inner_lifespans())

        self.listings = Listings(self)
        self.subscriptions = Subscriptions(self)
        self._offers: tuple[int, frozenset[str]] = (-1, frozenset())

    def __repr__(self) -> str:
        return f"<Server {self.alias!r}: {self.info.name} {self.info.version}>"

    def _mount(self, mounts: Sequence[Mountable]) -> None:
        """Add the registered and provided primitives of the mounted servers.

        Raises DeclarationError.
        """
        self.parts = tuple(mount.part(self) for mount in mounts)
        self._require_toolsets_once()
        joint = self.registry = Joint(self.registry)
        for part in self.parts:
            part.server.hosted_by(self)
            part.known = joint.follow(part.server.registry, part.adopt).taken
        joint.complete()
        self.providers = in_order((*self.providers, *(theirs for part in self.parts for theirs in part.providers)))

    def _require_toolsets_once(self) -> None:
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

    def hosted_by(self, host: "Server") -> None:
        """Set the host server. Its ports are used unless this server has its own."""
        self._host = self._host or host

    def _inner_lifespans(self) -> list[Any]:
        mounted = [part.server.lifespan.shared for part in self.parts if part.server.has_lifespan]
        return mounted + [t.lifespan for t in self.registry.toolsets if type(t).lifespan is not Toolset.lifespan]

    def provides(self, capability: str) -> bool:
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
        self._forget_ports()
        return self

    def _forget_ports(self) -> None:
        for port in fields(Ports):
            vars(self).pop(port.name, None)
        self.listings = Listings(self)
        for part in self.parts:
            if not part.server.is_bound:
                part.server._forget_ports()

    @cached_property
    def authorizer(self) -> Authorizer:
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
    def ledger(self) -> Ledger:
        return self.ports.ledger

    @cached_property
    def replies(self) -> Replies:
        return self.ports.replies

    @cached_property
    def changes(self) -> Changes | None:
        return self.ports.changes

    @property
    def offers(self) -> frozenset[str]:
        """Names of the capabilities that the server has primitives for, as on the wire."""
        version, offered = self._offers
        if version != self.registry.version:
            offered = self._offered()
            self._offers = self.registry.version, offered
        return offered

    def _offered(self) -> frozenset[str]:
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
        declared: dict[str, Any] = {name: {} for name in sorted(self.offers)}
        # Sessions receive list changes on their own GET streams only.
        if self.changes is not None and (revision.era is Era.STATELESS or self.options.enable_get):
            for name in LISTS:
                if name in declared:
                    declared[name] = {"listChanged": True, **({"subscribe": True} if name == "resources" else {})}

        for name, value in self.options.capabilities.items():
            if value is not None:
                declared[name] = {**declared.get(name, {}), **value}

        if not streams:
            declared = {
                name: {key: inner for key, inner in value.items() if key not in _NOTIFYING}
                for name, value in declared.items()
                if name not in _NOTIFYING
            }
        return revision.shape_capabilities(declared)

    def notified(self, revision: Revision, *, streams: bool = True) -> Notified:
        """Return the changes that clients of `revision` are notified of.

        They are the declared ones, and none without `streams`.
        """
        declared = self.capabilities(revision, streams=streams) if self.changes is not None else {}
        lists = frozenset(kind for kind in LISTS if declared.get(kind, {}).get("listChanged"))
        return Notified(lists, bool(declared.get("resources", {}).get("subscribe")))

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

    async def toolbox(self, call: Call, tools: Sequence[Offered]) -> Toolbox:
        """Build the set of `tools` that the client's model may use in a sampling request."""
        return await Toolbox.of(call, tools)

    def variant(self, **changes: Any) -> "Server":
        """Return a copy of the server with other options, but the same registry and ports."""
        other = copy.copy(self)
        return other.with_options(**changes)

    def with_options(self, **changes: Any) -> "Server":
        """Change options in place. For tests and scripts."""
        self.options = replace(self.options, **changes)
        self.listings, self._offers = Listings(self), (-1, frozenset())
        return self
