"""A server: an endpoint's identity, what it offers, and the seams it runs on."""

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
"""Capabilities, and their members, that consist of notifications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside of one server; `wiring` fills it in."""

    authorizer: Authorizer
    executor: Executor
    sessions: SessionStore
    state_sealer: Sealer
    cursor_sealer: Sealer
    ledger: Ledger
    translate: ExceptionTable = lambda problem: None
    """Turns a framework's exception into one of ours."""
    observer: Observer = field(default_factory=Unobserved)
    forms: FormTable = lambda schema: None
    """Knows the forms of a framework among what questions may ask for."""
    pages: Pages | None = None
    """None where there is no site."""
    replies: Replies = field(default_factory=InProcess)
    lists: ListMemory = field(default_factory=Forgetful)
    background: Places = field(default_factory=Unlimited)
    """What work after the answer may take."""
    at_end: Callable[[Callable[[], Awaitable[None]]], None] = lambda work: None
    """Has `work` awaited when the running loop is about to end."""
    changes: Changes | None = None
    """Where the server learns what changed; None when nobody tells it, so that it offers no subscriptions."""
    required_scopes: Callable[[Connection], Collection[str]] = lambda connection: ()
    """The scopes that every request on a connection takes, whatever it asks for."""


TRANSPORTS = ("http", "websocket", "sse", "stdio")
"""The ways into a server: Streamable HTTP, WebSocket, HTTP+SSE of the first revision, and a pipe."""


class Notified(NamedTuple):
    """The changes that a server tells of."""

    lists: frozenset[str]
    """Kinds of lists: "tools", "prompts", "resources"."""
    resources: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a server behaves."""

    require_session: bool = True
    """Does `initialize` open a session, which the requests that follow need (handshake era)?"""
    page_size: int | None = 100
    """Entries on one page of a list; None for all."""
    timeout: float | None = None
    """Seconds that a tool, prompt, resource or completion may run, unless it says so itself."""
    atomic: tuple[str, ...] = ()
    """Databases, by alias, on which a handler is one transaction unless it says otherwise itself."""
    log_level: str | None = "info"
    """The lowest level of log message that a session gets before its client sets one; None for none."""
    cache_ttl: float = 60.0
    """Seconds that a client may keep a list (server/utilities/caching)."""
    private: bool = False
    """Are lists for the caller only, whatever they hold? True where callers are authenticated."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """Added to what the server declares by itself; `experimental` entries go here. None in place of an entry takes a
    capability away, with its methods.
    """
    expose_errors: bool = False
    """Send the text of bugs to the client. For development."""
    raise_bugs: bool = False
    """Raise bugs out of the pipeline, in place of an answer. For tests, which call a server in their own process."""
    batch: int = 50
    """Messages that one batch may hold."""
    subscriptions: int = 100
    """Resources that a session, or one stream of the stateless era, may be told of."""
    ask: AskLimits = field(default_factory=AskLimits)
    enable_get: bool = True
    """May clients of sessions open a stream of their own with GET, and go on with one that they lost?"""
    allow_delete: bool = True
    """May clients end their session with DELETE?"""
    transports: tuple[str, ...] = TRANSPORTS
    """The ways in that are open, of `TRANSPORTS`."""
    healthz: bool = False
    """Answer GET at "<path>/healthz" where the server is mounted."""


class Mountable(Protocol):
    """What may be mounted in a server: `providers.mounts.Mount`."""

    def part(self, host: "Server") -> "Part":
        """What it is in `host`. Raises DeclarationError."""


class Server:
    """One endpoint. `MCP["SERVERS"]` describes them by alias; tests and scripts may build their own.

    Its decorators (`@server.tool`) register on it alone and raise DeclarationError at once.
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
        """Have what they hold among what is registered, or asked of providers. Raises DeclarationError."""
        self.parts = tuple(mount.part(self) for mount in mounts)
        self._require_toolsets_once()
        joint = self.registry = Joint(self.registry)
        for part in self.parts:
            part.server.hosted_by(self)
            part.known = joint.follow(part.server.registry, part.adopt).taken
        joint.complete()
        self.providers = in_order((*self.providers, *(theirs for part in self.parts for theirs in part.providers)))

    def _require_toolsets_once(self) -> None:
        """An instance keeps what its lifespan opened, which must not be opened twice. Raises DeclarationError."""
        owners: dict[int, Server] = {id(toolset): self for toolset in self.registry.toolsets}
        for part in self.parts:
            for toolset in part.server.registry.toolsets:
                if owners.setdefault(id(toolset), part.server) is not part.server:
                    text = "is an instance that is served here already; mount its class, or a server that has it"
                    raise DeclarationError(f"{type(toolset).__qualname__}, {part.label}, {text}")

    def hosted_by(self, host: "Server") -> None:
        """It is mounted in `host`, whose outside it uses unless it is given its own."""
        self._host = self._host or host

    def _inner_lifespans(self) -> list[Any]:
        mounted = [part.server.lifespan.shared for part in self.parts if part.server.has_lifespan]
        return mounted + [t.lifespan for t in self.registry.toolsets if type(t).lifespan is not Toolset.lifespan]

    def provides(self, capability: str) -> bool:
        """Have providers a part in what it offers?"""
        return any(capability in provider.offers for provider in self.providers)

    @property
    def ports(self) -> Ports:
        if self._ports is None and self._host is not None:
            return self._host.ports
        if self._ports is None:
            raise RuntimeError(f"{self!r} has no ports yet; mount it, or build it with ports=")
        return self._ports

    @property
    def is_bound(self) -> bool:
        """Has it been given its outside?"""
        return self._ports is not None

    def bind(self, ports: Ports) -> "Server":
        """Give it its outside, in place of the one it had."""
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
        """The capabilities that it has something for, by their names on the wire."""
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
        """What it declares to a client of `revision`. Without `streams`, over a transport that carries nothing but
        answers, it promises nothing that takes a notification.
        """
        declared: dict[str, Any] = {name: {} for name in sorted(self.offers)}
        # Sessions are told of changes on their own streams, and nowhere else.
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
        """The changes that clients of `revision` are told of, which is what it declares: nothing without `streams`."""
        declared = self.capabilities(revision, streams=streams) if self.changes is not None else {}
        lists = frozenset(kind for kind in LISTS if declared.get(kind, {}).get("listChanged"))
        return Notified(lists, bool(declared.get("resources", {}).get("subscribe")))

    def tool(self, fn: Any = None, *, name: str | None = None, **options: Unpack[ToolOptions]) -> Any:
        """`mcp_django.tool`, for this server only."""
        return register_tool(self.registry, fn, name, options)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Any:
        """`mcp_django.resource`, for this server only."""
        return register_resource(self.registry, uri, options)

    def prompt(self, fn: Any = None, *, name: str | None = None, **options: Unpack[PrimitiveOptions]) -> Any:
        """`mcp_django.prompt`, for this server only."""
        return register_prompt(self.registry, fn, name, options)

    def completion(
        self, target: str, argument: str, *, atomic: bool | str | Sequence[str] | None = None
    ) -> Callable[[Any], Any]:
        """`mcp_django.completion`, for this server only."""
        decorator: Callable[[Any], Any] = register_completer(self.registry, target, argument, atomic)
        return decorator

    def remove(self, kind: Kind, key: str) -> bool:
        """Take out what is registered: a tool or prompt by its name, a resource by its URI, a template by its text;
        with its completions. False when there is none. Clients that listen are told that the list changed.

        It holds for this process, as everything that is registered does: what every worker must agree on comes from a
        Provider.
        """
        return self.registry.remove(kind, key)

    async def toolbox(self, call: Call, tools: Sequence[Offered]) -> Toolbox:
        """What the client's model may use of `tools` in a sample of `call`."""
        return await Toolbox.of(call, tools)

    def variant(self, **changes: Any) -> "Server":
        """The same server, with what is registered on it and its outside, but with other options."""
        other = copy.copy(self)
        return other.with_options(**changes)

    def with_options(self, **changes: Any) -> "Server":
        """Change options in place; for tests and scripts."""
        self.options = replace(self.options, **changes)
        self.listings, self._offers = Listings(self), (-1, frozenset())
        return self
