"""The options themselves: each field of these dataclasses is a key of the `MCP` setting, in capitals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated

from ..server.server import TRANSPORTS
from .readers import (
    ERAS,
    Auth,
    Count,
    DottedPaths,
    Entries,
    Eras,
    Flag,
    Modules,
    OptionalCount,
    OptionalDotted,
    OptionalLevel,
    OptionalSeconds,
    OptionalText,
    Origins,
    OrmStyle,
    Seconds,
    SecondsOrZero,
    Text,
    Transports,
    URLPath,
    integer,
)


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
    capabilities: Entries = field(default_factory=lambda: MappingProxyType({}))
    """Entries added to the capabilities the server declares, such as "experimental"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`MCP` itself."""

    auth: Auth = ()
    """Who may call. None, here (): nobody (403), or with DEBUG the local principal. "none": the local principal, who
    comes from loopback. "token": bearers of personal access tokens. Dotted paths: whom these verifiers know."""
    local_user: OptionalText = None
    """Username of the user the local principal acts as. None: it acts as nobody, with all rights."""
    servers: Mapping[str, ServerSettings] = field(
        default_factory=lambda: MappingProxyType({"default": ServerSettings()})
    )
    """Endpoints by alias, as in CACHES."""
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
