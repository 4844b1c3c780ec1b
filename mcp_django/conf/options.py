"""The options themselves: each field of these dataclasses is a key of the `MCP` setting, in capitals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated

from mcp_django.conf.clients import ClientSettings
from mcp_django.conf.issuers import Issuer
from mcp_django.conf.mounts import Mounts
from mcp_django.conf.proxies import ProxySettings
from mcp_django.conf.readers import (
    ERAS,
    Auth,
    Count,
    DottedPaths,
    Entries,
    Eras,
    Flag,
    Icons,
    ImpliedScopes,
    Modules,
    OptionalAlias,
    OptionalCount,
    OptionalDotted,
    OptionalLevel,
    OptionalOrigin,
    OptionalRate,
    OptionalSeconds,
    OptionalText,
    OptionalURL,
    Origins,
    OrmStyle,
    Scopes,
    ScopesOrFunction,
    ScopeWords,
    Seconds,
    SecondsOrZero,
    Text,
    Transports,
    URLOrFunction,
    URLPath,
    URLsOrFunction,
    integer,
)
from mcp_django.server.rates import Rate
from mcp_django.server.server import TRANSPORTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`MCP["LIMITS"]`: what one client may ask of a worker, and one worker of the machine."""

    body: Count = 4 * 1024 * 1024
    """Bytes of a request's body."""
    nesting: Annotated[int, integer(4, 512)] = 64
    """How deep arrays and objects of a message may stand in one another."""
    batch: Count = 50
    """Messages of one batch, which clients of one revision may send."""
    in_flight: Count = 32
    """Calls that one session (handshake era) or principal (stateless era) may have running at once on one server, in
    one process; and those of one socket or pipe. Those of a batch count each."""
    sessions_per_owner: Annotated[int, integer(1, 32767)] = 20
    """Live sessions of one principal. One more ends the session that was idle longest. The local principal, behind
    whom there are many clients of one machine, has no such limit."""
    sessions: Count = 10_000
    """Live sessions of one server. Above it `initialize` is refused until some end or expire."""
    client_bytes: Annotated[int, integer(256)] = 64 * 1024
    """Bytes of JSON that a client may say about itself in `initialize`, which its session keeps."""
    session_idle: Seconds = 3600.0
    """Seconds without a message after which a session expires, unless it is serving a call."""
    session_lifetime: Seconds = 7 * 24 * 3600.0
    """Seconds after which a session expires even if it is in use."""
    sse_upgrade_after: SecondsOrZero = 5.0
    """Seconds after which the answer to a call that is still running becomes an event stream."""
    unsent: Count = 64
    """Messages of one call that may wait for a client that reads slowly. Then the handler waits as well."""
    unsent_wait: Seconds = 60.0
    """Seconds that a handler waits for a client that reads none of them. Then the client counts as gone."""
    events: Count = 1000
    """Messages of one stream that are kept for a client of a session that comes back (handshake era)."""
    keep_alive: Seconds = 15.0
    """Seconds between the comments that keep a silent event stream open."""
    ping: Seconds = 30.0
    """Seconds of silence on a socket after which its client (handshake era) is asked whether it is there, and in which
    it has to answer."""
    listens: Count = 1000
    """Streams that may be open in one process, besides those of calls: `subscriptions/listen`, GET of sessions, and
    sockets."""
    listens_per_owner: Count = 50
    """Those of one principal among them. The local principal has no such limit."""
    subscriptions: Count = 100
    """Resources whose changes one session, or one stream of changes, may subscribe to."""
    question_wait: Seconds = 600.0
    """Seconds a handshake-era call waits for the client to answer a question."""
    page_wait: SecondsOrZero = 60.0
    """Seconds a stateless-era call waits for the user to finish a page of the site, before it asks once more."""
    state_bytes: Annotated[int, integer(1024)] = 64 * 1024
    """Bytes of the sealed `requestState` that carries a conversation from round to round."""
    state_ttl: Seconds = 3600.0
    """Seconds for which a `requestState` can be answered."""
    answers: Count = 64
    """Answers that one conversation may hold."""
    rounds: Count = 32
    """Rounds that one conversation may take."""
    stale_rounds: Count = 3
    """Rounds in a row that may end without asking for an answer the conversation already has."""
    event_ttl: Seconds = 600.0
    """Seconds for which events stay in the log, for clients and processes that come back."""
    lanes: Count = 16
    """Threads that run sync handlers and the ORM."""
    lane_queue: Annotated[int, integer(0)] = 256
    """Calls that may wait for a lane. One more is refused at once."""
    waiting_threads: Annotated[int, integer(0)] = 256
    """Sync handlers that may wait for a client's answer (`ctx.sync`). They keep their thread, and count as no lane
    meanwhile. One more is refused at once."""
    background: Annotated[int, integer(0)] = 256
    """Pieces of work left for after the answer (`ctx.background`) that may wait or run in a process. A call that leaves
    one more is refused at once."""
    shutdown_grace: SecondsOrZero = 10.0
    """Seconds that running calls have to end once the process is told to. Then each is ended, and its client told."""


TOKEN_FAILURES, REGISTRATION = Rate(30, 60), Rate(20, 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """`MCP["RATES"]`: how often something may be done, such as "10/m" (times, a slash, and s, m, h or d, or several of
    them: "5/15m"). Counted in Django's cache, so for all workers together where the cache is shared."""

    principal: OptionalRate = None
    """Messages of one principal, on all servers; each of a batch counts. None: as many as it likes. The local
    principal, behind whom there are many clients of one machine, has no such rate."""
    address: OptionalRate = None
    """Requests, and sockets opened, from one address, before anybody asks whose they are. None: as many as it likes."""
    token_failures: OptionalRate = TOKEN_FAILURES
    """Credentials from one address that turn out not to be good. After these, tokens from there that are not known to
    be good are not looked at for a while."""
    registration: OptionalRate = REGISTRATION
    """Clients that one address may register. While the cache is down, nobody can."""
    cache: Text = "default"
    """The alias in CACHES of the cache that counts."""
    num_proxies: Annotated[int, integer(0, 16)] = 0
    """Proxies of your own in front of the workers, of which each adds an address to X-Forwarded-For. 0: the header is
    not looked at, and the peer is the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One entry of `MCP["SERVERS"]`: an endpoint under its alias. `"default"` serves what names no server."""

    name: Text = "django"
    """`serverInfo.name`. The default is the alias, and "django" for the default server."""
    version: Text = "1"
    """`serverInfo.version`: the version of the project, not of this package."""
    title: OptionalText = None
    """`serverInfo.title`, for people."""
    description: OptionalText = None
    """`serverInfo.description`, in the revisions that have it."""
    instructions: OptionalText = None
    """What the model should know about this server before it uses it."""
    website_url: OptionalText = None
    """`serverInfo.websiteUrl`, in the revisions that have it."""
    icons: Icons = ()
    """`serverInfo.icons`, in the revisions that have it: URLs, or dicts of `src`, `mimeType`, `sizes` and `theme`."""
    path: URLPath = "mcp"
    """Where the endpoint is, below the place of `mcp_django.urls`. The default for another alias is "mcp/<alias>"."""
    eras: Eras = ERAS
    """The eras served: "handshake" (the revisions with `initialize`), "stateless", or both."""
    transports: Transports = TRANSPORTS
    """The ways in: "http" (Streamable HTTP, at the path), "websocket" (below it, at "ws"), "sse" (HTTP+SSE of the first
    revision, at "sse"), "stdio" (`manage.py mcp_stdio`)."""
    require_session: Flag = True
    """Do clients of the handshake era need a session? False: `initialize` opens none, every request stands for itself,
    and nothing can be asked, subscribed to or set for later."""
    page_size: OptionalCount = 1000
    """Entries of a page of a list; None for all. Generous, because there are clients that read the first page only."""
    timeout: OptionalSeconds = None
    """Seconds a handler may take, unless its declaration says otherwise. None: as long as it likes."""
    log_level: OptionalLevel = "info"
    """The least level of log messages sent to a client that has named none; None: it gets none."""
    cache_ttl: SecondsOrZero = 60.0
    """Seconds for which clients may keep a list (`ttlMs`)."""
    middleware: DottedPaths = ()
    """Dotted paths of middleware, outermost first."""
    providers: DottedPaths = ()
    """Dotted paths of providers, asked after the registered declarations."""
    mounts: Mounts = field(default_factory=lambda: MappingProxyType({}))
    """What this server serves of others, by the prefix that it has here: {"weather": "weather.mcp_tools.Weather"}. See
    `mcp_django/conf/mounts.py`."""
    proxies: Mapping[str, ProxySettings] = field(default_factory=lambda: MappingProxyType({}))
    """Servers in CLIENTS that are passed on, by alias, each with its options; or a list of aliases. See
    `mcp_django/conf/proxies.py`."""
    stored: Flag = True
    """Serve the prompts and resources that are written in the admin? They come after everything else."""
    lifespan: OptionalDotted = None
    """Dotted path of a function of the server that returns an async context manager, entered once per process; handlers
    see its value as `ctx.lifespan`."""
    enable_get: Flag = True
    """May clients open a stream of their session, and go on with one that they lost (GET, handshake era)?"""
    allow_delete: Flag = True
    """May clients end their session (DELETE, handshake era)?"""
    healthz: Flag = False
    """Answer GET and HEAD at "<path>/healthz": 200, or 503 while the process is shutting down. Anybody may ask."""
    required_scopes: ScopesOrFunction = ()
    """Scopes that every request takes, and that clients ask for first; or the dotted path of a function that takes the
    request (`mcp_django.auth.requests.AuthRequest`) and returns them."""
    resource: OptionalURL = None
    """The URL that tokens are made for. None: ORIGIN and the place of the endpoint."""
    authorization_servers: URLsOrFunction = None
    """Issuers that clients are sent to, the preferred one first, or the dotted path of a function of the request. None:
    those whose tokens AUTH takes."""
    resource_metadata_url: URLOrFunction = None
    """Where clients find the metadata of this resource (RFC 9728), or the dotted path of a function of the request.
    None: the well-known place of the resource, which is served here."""
    resource_metadata: Entries = field(default_factory=lambda: MappingProxyType({}))
    """Entries added to that metadata, such as "resource_documentation"."""
    authorizer: OptionalDotted = None
    """Dotted path of a function that may take rights away from a principal who has been verified, never add any."""
    capabilities: Entries = field(default_factory=lambda: MappingProxyType({}))
    """Entries added to the capabilities the server declares, such as "experimental". None in place of an entry takes
    one away, with its methods: {"logging": None}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`MCP` itself."""

    auth: Auth = ()
    """Who may call. None, here (): with an embedded authorization server as ["oauth", "token"]; else nobody (403), or
    with DEBUG the local principal. "none": the local principal, who comes from loopback. "token": bearers of personal
    access tokens. "oauth": bearers of tokens of the embedded authorization server. "external": bearers of tokens of
    ISSUERS. "session": pages of this site, for who is logged in. Dotted paths: whom these verifiers know."""
    origin: OptionalOrigin = None
    """The project's own origin, such as "https://example.com": what its endpoints are called by in tokens and metadata,
    whatever Host a request has. None: that of the embedded authorization server's issuer, if there is one."""
    scopes: ScopeWords = field(default_factory=lambda: MappingProxyType({}))
    """Scopes by name, with what each lets a client do, for people."""
    scope_implies: ImpliedScopes = field(default_factory=lambda: MappingProxyType({}))
    """Scopes that include others: {"notes:write": ["notes:read"]}. What is included may include more."""
    issuers: tuple[Issuer, ...] = ()
    """Identity providers whose tokens are taken, for "external" in AUTH. See `mcp_django/conf/issuers.py`."""
    session_scopes: Scopes = ()
    """Scopes of the pages of this site, for "session" in AUTH."""
    rates: Rates = field(default_factory=Rates)
    """See Rates."""
    token_cache: OptionalAlias = None
    """The alias in CACHES where processes share what they have verified. None: each verifies for itself."""
    local_user: OptionalText = None
    """Username of the user the local principal acts as. None: it acts as nobody, with all rights."""
    servers: Mapping[str, ServerSettings] = field(
        default_factory=lambda: MappingProxyType({"default": ServerSettings()})
    )
    """Endpoints by alias, as in CACHES."""
    clients: Mapping[str, ClientSettings] = field(default_factory=lambda: MappingProxyType({}))
    """Servers that this project uses, by alias. See `mcp_django/conf/clients.py`."""
    limits: Limits = field(default_factory=Limits)
    """See Limits."""
    channel_layer: OptionalText = "default"
    """The alias in CHANNEL_LAYERS of the layer that wakes other processes. None: they look once a second."""
    allowed_origins: Origins = ()
    """Origins of pages that may send requests, besides CSRF_TRUSTED_ORIGINS and pages from loopback."""
    cors_allowed_origins: Origins = ()
    """Origins of pages that may read the answers too (CORS); with DEBUG, pages from loopback may."""
    autodiscover_modules: Modules = ("mcp_tools",)
    """Modules looked for in every installed app when the project starts."""
    orm_style: OrmStyle = "per_model"
    """The tools of model toolsets. "per_model": each verb of each model is a tool, such as `airport_list`. "generic":
    each verb is one tool for all of a server's models, such as `models_list`, which takes the model as an argument."""
    expose_internal_errors: Flag = False
    """With DEBUG: send the text of an unexpected exception to the client. Without DEBUG it is never sent."""
    interrupt_sql: Flag = True
    """Stop the SQL that a call leaves running when it is cancelled, times out or ends (PostgreSQL and SQLite), and
    refuse its further statements. False: it runs to its end, and its thread is taken until then."""
    token_cache_seconds: SecondsOrZero = 10.0
    """Seconds for which a worker trusts a token it has verified, so also how long a revoked one may go on."""
