"""Options of the `MCP` setting.

Each field of these dataclasses is a key, in capitals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated

from mcp_django.conf import readers
from mcp_django.conf.clients import ClientSettings
from mcp_django.conf.issuers import IssuerSettings
from mcp_django.conf.mounts import Mounts
from mcp_django.conf.proxies import ProxySettings
from mcp_django.server.options import ConversationLimits, ServerOptions
from mcp_django.server.primitives.base import Rate

_SERVER, _CONVERSATION = ServerOptions(), ConversationLimits()
"""Options of the engine, which have the defaults of the settings with the same names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`MCP["LIMITS"]`: limits of one client, and of one worker process."""

    body: readers.Count = 4 * 1024 * 1024
    """Maximum size of a request body in bytes."""
    result_bytes: readers.Count = _SERVER.result_bytes
    """Maximum size of a result in bytes, with its JSON-RPC envelope.

    A larger result of a tool becomes an error that the model reads. `max_result` of a tool replaces the limit.
    """
    in_flight: readers.Count = 32
    """Maximum number of concurrent calls on one server in one process. Up to 256 further ones wait.

    The limit applies to each session (handshake era), principal (stateless era), socket and pipe. Calls of a batch
    count individually.
    """
    sessions_per_owner: Annotated[int, readers.integer(1, 32767)] = 20
    """Maximum number of live sessions of one principal.

    A further one ends the session that was idle longest. The local principal has no such limit, because it represents
    many clients of one machine.
    """
    sessions: readers.Count = 10_000
    """Maximum number of live sessions of one server. Above it `initialize` is refused."""
    session_idle: readers.Seconds = 3600.0
    """Seconds without a message after which an idle session expires.

    A session that serves a call does not expire.
    """
    session_lifetime: readers.Seconds = 7 * 24 * 3600.0
    """Seconds after which a session expires, even if it is in use."""
    sse_upgrade_after: readers.SecondsOrZero = 5.0
    """Seconds after which the response to a running call becomes an event stream."""
    send_buffer: readers.Count = 64
    """Size of the send buffer of a call, in messages.

    When it is full the handler waits.
    """
    send_timeout: readers.Seconds = 60.0
    """Send timeout in seconds.

    A client that reads nothing for so long counts as disconnected.
    """
    events: readers.Count = 1000
    """Number of messages of a stream stored for replay (handshake era).

    A client that reconnects receives them.
    """
    keep_alive: readers.Seconds = 15.0
    """Seconds between comments that keep an idle event stream open."""
    ping: readers.Seconds = 30.0
    """Seconds of silence on a socket before a ping (handshake era).

    The client must respond within the same time.
    """
    max_streams: readers.Count = 1000
    """Maximum number of open streams in one process, in addition to those of calls.

    These are `subscriptions/listen`, GET streams of sessions, and sockets.
    """
    max_streams_per_owner: readers.Count = 50
    """Maximum number of such streams for one principal.

    The local principal has no such limit.
    """
    wsgi_waits: Annotated[int, readers.integer(0)] = 4
    """Maximum number of requests that wait under WSGI, in one process.

    They wait for the end of a task or its grace, for a place below `IN_FLIGHT`, or for the same step of another
    request. Each holds a thread of the server, so set less than half of its threads. A process without threads never
    waits.
    """
    wsgi_waits_per_owner: Annotated[int, readers.integer(0)] = 2
    """Maximum number of such requests of one principal.

    The local principal has no such limit.
    """
    subscriptions: readers.Count = _SERVER.subscriptions
    """Maximum number of resource subscriptions of one session or one change stream."""
    elicitation_timeout: readers.Seconds = _CONVERSATION.elicitation_timeout
    """Seconds that a handshake-era call waits for a client's response.

    This applies to elicitation and other client requests.
    """
    url_elicitation_timeout: readers.SecondsOrZero = _CONVERSATION.url_elicitation_timeout
    """Seconds that a stateless-era call waits for the user to finish a page.

    Then it repeats the request.
    """
    state_ttl: readers.Seconds = _CONVERSATION.state_ttl
    """Lifetime of a `requestState` in seconds."""
    event_ttl: readers.Seconds = 600.0
    """Seconds for which events stay in the log.

    Clients and processes that reconnect read them.
    """
    threads: readers.Count = 16
    """Number of threads for sync handlers and the ORM."""
    thread_queue: Annotated[int, readers.integer(0)] = 256
    """Maximum number of calls that wait for a thread.

    Further ones are refused at once.
    """
    waiting_threads: Annotated[int, readers.integer(0)] = 256
    """Maximum number of calls that keep a thread while they wait for a client's response.

    They are those of sync handlers (`ctx.sync`), and those inside a plain context manager of `AROUND`. The thread does
    not count as one of the pool during the wait. Further calls are refused at once.
    """
    background: Annotated[int, readers.integer(0)] = 256
    """Maximum number of background tasks that wait or run in one process.

    Tasks are added by `ctx.background`. A call that adds a further one is refused at once.
    """
    shutdown_grace: readers.SecondsOrZero = 10.0
    """Seconds that running calls have to finish after a shutdown request.

    Then each one is aborted, and its client is notified.
    """
    stdio_grace: readers.SecondsOrZero = 1.0
    """Seconds that running calls have to finish after a client has closed stdin.

    Then each one is aborted. Clients end the process about two seconds after they have closed stdin.
    """


DEFAULT_TOKEN_FAILURE_RATE, DEFAULT_REGISTRATION_RATE = Rate(30, 60), Rate(20, 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """`MCP["RATES"]`: rate limits such as "10/m".

    The format is a number, a slash, and s, m, h or d, optionally with a count: "5/15m". Rates are counted in Django's
    cache. All workers count together if they share that cache.
    """

    principal: readers.OptionalRate = None
    """Messages of one principal on all servers; each message of a batch counts.

    None: unlimited. The local principal has no such limit, because it represents many clients of one machine.
    """
    address: readers.OptionalRate = None
    """Requests and new sockets of one address, counted before authentication.

    None: unlimited.
    """
    token_failures: readers.OptionalRate = DEFAULT_TOKEN_FAILURE_RATE
    """Invalid credentials of one address.

    Above it tokens from the address are refused for a while, unless they are cached as valid.
    """
    registration: readers.OptionalRate = DEFAULT_REGISTRATION_RATE
    """Client registrations of one address.

    While the cache is down, registration is refused.
    """
    cache: readers.Text = "default"
    """Alias in CACHES of the cache that counts."""
    num_proxies: Annotated[int, readers.integer(0, 16)] = 0
    """Number of trusted proxies in front of the workers.

    Each adds an address to X-Forwarded-For. 0: the header is ignored, and the peer is the client.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ORM:
    """`MCP["ORM"]`: toolsets of models."""

    object_permissions: readers.ObjectPermissions = None
    """Rows on which a caller has a permission, if an authentication backend decides about single objects.

    - "all": `has_perm` without an object decides about every row.
    - "some": `has_perm` decides about each row, for models with at most 1,000 rows.
    - Dotted path of a function of user, permission and queryset that returns the rows.

    None: "all" without such a backend, otherwise no rows.
    """
    toolset: readers.OptionalDotted = None
    """Dotted path of the base class of the project's model toolsets, a subclass of ModelToolset.

    `register_model` uses it, and a system check reports toolsets that do not extend it. None: ModelToolset.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Entry of `MCP["SERVERS"]`: an endpoint by its alias.

    "default" serves declarations that name no server.
    """

    name: readers.Text = "django"
    """`serverInfo.name`. Default: the alias, and "django" for the default server."""
    version: readers.Text = "1"
    """`serverInfo.version`: the version of the project, not of this package."""
    title: readers.OptionalText = None
    """`serverInfo.title`, for people."""
    description: readers.OptionalText = None
    """`serverInfo.description`, in revisions that have it."""
    instructions: readers.OptionalText = None
    """Information for the model about this server, read before it is used."""
    website_url: readers.OptionalText = None
    """`serverInfo.websiteUrl`, in revisions that have it."""
    icons: readers.Icons = ()
    """`serverInfo.icons`, in revisions that have it.

    URLs, or dicts of `src`, `mimeType`, `sizes` and `theme`.
    """
    path: readers.URLPath = "mcp"
    """Path of the endpoint, below the include of `mcp_django.urls`.

    Default for another alias: "mcp/<alias>".
    """
    eras: readers.Eras = readers.ERAS
    """Served eras: "handshake" (revisions with `initialize`), "stateless", or both."""
    transports: readers.Transports = _SERVER.transports
    """Served transports.

    "http" (Streamable HTTP, at the path), "websocket" (at "ws" below it), "sse" (HTTP+SSE of the first revision, at
    "sse" below it), "stdio" (`manage.py mcp_stdio`).
    """
    require_session: readers.Flag = _SERVER.require_session
    """Require a session from clients of the handshake era.

    False: `initialize` opens no session, every request is independent, and client requests, subscriptions and
    persistent settings are not available.
    """
    page_size: readers.OptionalCount = _SERVER.page_size
    """Entries per page of a list; None for all.

    Large, because some clients read only the first page.
    """
    timeout: readers.OptionalSeconds = _SERVER.timeout
    """Default timeout of a handler in seconds. None: unlimited."""
    log_level: readers.OptionalLevel = _SERVER.log_level
    """Minimum level of log messages for clients that have not set one.

    None: no log messages.
    """
    cache_ttl: readers.SecondsOrZero = _SERVER.cache_ttl
    """Seconds for which clients may cache a list (`ttlMs`)."""
    middleware: readers.DottedPaths = ()
    """Dotted paths of middleware, outermost first."""
    around: readers.DottedPaths = ()
    """Dotted paths of functions whose context managers surround each run of a handler, outermost first.

    Each takes the Context and returns a context manager, plain or async. Use it for the user of a change log, a scope,
    a tenant.
    """
    providers: readers.DottedPaths = ()
    """Dotted paths of providers, consulted after registered declarations."""
    extensions: readers.DottedPaths = ()
    """Dotted paths of protocol extensions.

    Each names a subclass of `mcp_django.extensions.Extension`, an instance, or a function that returns one.
    """
    mounts: Mounts = field(default_factory=lambda: MappingProxyType({}))
    """Mounted servers and toolsets by prefix.

    Example: {"weather": "weather.mcp_tools.Weather"}. See `mcp_django/conf/mounts.py`.
    """
    proxies: Mapping[str, ProxySettings] = field(default_factory=lambda: MappingProxyType({}))
    """Proxied entries of CLIENTS, by alias with options, or a list of aliases.

    See `mcp_django/conf/proxies.py`.
    """
    orm_style: readers.OptionalOrmStyle = None
    """Style of the tools of its model toolsets. None: `ORM_STYLE` of all servers."""
    stored: readers.Flag = True
    """Serve the prompts and resources written in the admin, after all others."""
    lifespan: readers.OptionalDotted = None
    """Dotted path of a function of the server that returns an async context manager.

    It is entered once per process. Handlers read its value as `ctx.lifespan`.
    """
    enable_get: readers.Flag = _SERVER.enable_get
    """Allow clients to open and resume a stream of their session (GET, handshake era)."""
    allow_delete: readers.Flag = _SERVER.allow_delete
    """Allow clients to end their session (DELETE, handshake era)."""
    healthz: readers.Flag = _SERVER.healthz
    """Respond to GET and HEAD at "<path>/healthz" with 200 or 503.

    503 during shutdown, and while the database does not answer or lacks migrations. Without authentication.
    """
    required_scopes: readers.ScopesOrFunction = ()
    """Scopes that every request requires, and that clients request first.

    Or the dotted path of a function that takes the request (`mcp_django.auth.requests.AuthRequest`) and returns them.
    """
    resource: readers.OptionalURL = None
    """URL that tokens are issued for. None: ORIGIN and the path of the endpoint."""
    authorization_servers: readers.URLsOrFunction = None
    """Issuers announced to clients, the preferred one first.

    Or the dotted path of a function of the request. None: those whose tokens AUTH accepts.
    """
    resource_metadata_url: readers.URLOrFunction = None
    """URL of the metadata of this resource (RFC 9728).

    Or the dotted path of a function of the request. None: the well-known URL of the resource, which is served here.
    """
    resource_metadata: readers.Entries = field(default_factory=lambda: MappingProxyType({}))
    """Additional entries of that metadata, such as "resource_documentation"."""
    authorizer: readers.OptionalDotted = None
    """Dotted path of a function that may remove rights from a verified principal.

    It cannot add rights.
    """
    capabilities: readers.Entries = field(default_factory=lambda: MappingProxyType({}))
    """Additional entries of the declared capabilities, such as "experimental".

    None as a value removes a capability and its methods: {"logging": None}.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The `MCP` setting."""

    auth: readers.Auth = ()
    """Accepted credentials.

    - "none": the local principal, on loopback only.
    - "token": personal access tokens.
    - "oauth": tokens of the embedded authorization server.
    - "external": tokens of ISSUERS.
    - "session": pages of this site, for logged-in users.
    - Dotted paths: custom verifiers.

    Default: None, parsed as (). With an embedded authorization server it means ["oauth", "token"]. Otherwise every
    request is refused with 403, except for the local principal with DEBUG.
    """
    origin: readers.OptionalOrigin = None
    """Origin of the project, such as "https://example.com".

    It names the endpoints in tokens and metadata, whatever the Host of a request is. None: the origin of the embedded
    authorization server's issuer, if there is one.
    """
    scopes: readers.ScopeDescriptions = field(default_factory=lambda: MappingProxyType({}))
    """Descriptions of scopes for people, by scope."""
    scope_implies: readers.ImpliedScopes = field(default_factory=lambda: MappingProxyType({}))
    """Included scopes by scope: {"notes:write": ["notes:read"]}.

    Inclusion is transitive.
    """
    issuers: tuple[IssuerSettings, ...] = ()
    """Identity providers whose tokens are accepted, for "external" in AUTH.

    See `mcp_django/conf/issuers.py`.
    """
    session_scopes: readers.Scopes = ()
    """Scopes of the pages of this site, for "session" in AUTH."""
    rates: Rates = field(default_factory=Rates)
    """Rate limits, see `Rates`."""
    token_cache: readers.OptionalAlias = None
    """Alias in CACHES of the cache in which processes share verified principals.

    None: not shared.
    """
    local_user: readers.OptionalText = None
    """Username of the user that the local principal acts as.

    None: without a user, with all rights.
    """
    servers: Mapping[str, ServerSettings] = field(
        default_factory=lambda: MappingProxyType({"default": ServerSettings()})
    )
    """Endpoints by alias, as in CACHES."""
    clients: Mapping[str, ClientSettings] = field(default_factory=lambda: MappingProxyType({}))
    """Servers that this project uses, by alias. See `mcp_django/conf/clients.py`."""
    limits: Limits = field(default_factory=Limits)
    """Limits, see `Limits`."""
    channel_layer: readers.OptionalText = "default"
    """Alias in CHANNEL_LAYERS of the layer that wakes other processes.

    None: they poll once a second.
    """
    allowed_origins: readers.Origins = ()
    """Origins of pages that may send requests.

    They add to CSRF_TRUSTED_ORIGINS and loopback.
    """
    cors_allowed_origins: readers.Origins = ()
    """Origins of pages that may also read responses (CORS).

    With DEBUG, pages from loopback are included.
    """
    autodiscover_modules: readers.Modules = ("mcp_tools",)
    """Modules imported from every installed app at startup."""
    orm: ORM = field(default_factory=ORM)
    """Toolsets of models, see `ORM`."""
    orm_style: readers.OrmStyle = "per_model"
    """Style of the tools of model toolsets; a server may have its own, in its entry of SERVERS.

    "per_model": one tool for each operation of each model, such as `airport_list`. "generic": one tool for each
    operation of all models of a server, such as `models_list`, which takes the model as an argument.
    """
    expose_internal_errors: readers.Flag = False
    """Send the text of an unexpected exception to the client while DEBUG is on.

    Never without DEBUG.
    """
    interrupt_sql: readers.Flag = True
    """Interrupt the SQL of a call that is cancelled, times out or ends.

    Supported on PostgreSQL and SQLite. Further statements of the call are refused. False: the SQL runs to its end and
    keeps its thread until then.
    """
    token_cache_seconds: readers.SecondsOrZero = 10.0
    """Seconds for which a worker caches a verified token.

    A revoked token may stay valid for so long.
    """
    max_token_days: Annotated[int | None, readers.optional(readers.integer(1, 36500))] = None
    """Maximum lifetime of a new personal access token in days.

    None: unlimited, and a token may be valid until it is revoked.
    """
