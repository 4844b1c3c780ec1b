"""`MCP["CLIENTS"]`: the servers that this project uses, by alias. Each field of `ClientSettings` is a key of an entry,
in capitals.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from mcp_django.conf.issuers import (
    ALGORITHMS,
    CLIENT_AUTH,
    WrongSecret,
    is_loopback_url,
    issuer_name,
    provider_url,
    secret,
)
from mcp_django.conf.readers import (
    ERAS,
    Count,
    OptionalDotted,
    OptionalLevel,
    OptionalSeconds,
    OptionalText,
    Scopes,
    Seconds,
    SecondsOrZero,
    Text,
    WrongValue,
    integer,
    one_of,
    optional,
    several,
    word,
)
from mcp_django.protocol.revisions import REVISIONS

CLIENT_ALIAS: Final = r"[a-z](?:[a-z0-9-]|_(?=[a-z0-9-])){0,31}"
"""Small letters, digits, - and _, 32 at most. It comes before "__" in the names of tools: so it has no "__" itself, and
ends in none."""
SCHEMES: Final = {"http": "http", "https": "http", "ws": "websocket", "wss": "websocket"}
"""The transport that a URL means by itself."""
CLIENT_TRANSPORTS: Final = ("http", "sse", "websocket")
AUTH_TYPES: Final = ("bearer", "oauth", "client_credentials")
OWNERS: Final = ("user", "project")
RESERVED: Final = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "upgrade", "accept", "last-event-id"}
)
"""Headers that the transports write, besides those that begin with "mcp-"."""


class WrongPart(WrongSecret):
    """Something inside of the value cannot be used; neither is shown."""


def server_url(raw: Any) -> str:
    # Never shown: a query may be a key.
    if not isinstance(raw, str) or not raw.isascii() or not raw.isprintable() or " " in raw or "\\" in raw:
        raise WrongPart("must be an absolute URL: https, http, wss or ws")
    try:
        parts = urlsplit(raw)
        parts.port  # noqa: B018  # raises for what is no port
    except ValueError:
        raise WrongPart("must be an absolute URL: https, http, wss or ws") from None
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise WrongPart("must be an absolute URL: https, http, wss or ws")
    if "@" in parts.netloc or "#" in raw:
        raise WrongPart("must have no credentials before the host and no fragment; credentials go to AUTH or HEADERS")
    return raw


def program(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, str):
        raise WrongSecret("must be a list, such as ['npx', '-y', 'a-server']; no shell takes it apart")
    if not isinstance(raw, list | tuple) or not raw:
        raise WrongSecret("must be a list of the program and its arguments")
    parts = tuple(fspath(part) if isinstance(part, PathLike) else part for part in raw)
    if not all(isinstance(part, str) and "\0" not in part for part in parts) or not parts[0].strip():
        raise WrongPart("must be a list of strings and paths, the program first")
    return parts


def header_values(raw: Any) -> Mapping[str, str]:
    if not isinstance(raw, Mapping):
        raise WrongSecret("must be a dict from names of headers to values")
    for name, value in raw.items():
        if not isinstance(name, str) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise WrongPart("must have names of headers as its keys")
        if name.lower() in RESERVED or name.lower().startswith("mcp-"):
            raise WrongPart(f"must leave {name} to the transport")
        if not isinstance(value, str) or not re.fullmatch(r"[\x20-\x7e\t]*", value):
            raise WrongPart(f"must have a string of printable ASCII for {name}")
    return MappingProxyType(dict(raw))


def environment(raw: Any) -> Mapping[str, str]:
    if not isinstance(raw, Mapping):
        raise WrongSecret("must be a dict from names of variables to values")
    for name, value in raw.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise WrongPart("must have names of variables as its keys")
        if not isinstance(value, str | PathLike) or "\0" in fspath(value):
            raise WrongPart(f"must have a string for {name}")
    return MappingProxyType({name: fspath(value) for name, value in raw.items()})


def directory(raw: Any) -> str:
    if not isinstance(raw, str | PathLike) or not fspath(raw):
        raise WrongValue("must be the path of a directory")
    return str(fspath(raw))


def root_uris(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, str) or not isinstance(raw, list | tuple):
        raise WrongValue("must be a list of absolute paths or file:// URIs")
    return tuple(dict.fromkeys(_root(item) for item in raw))


def _root(raw: Any) -> str:
    if isinstance(raw, str) and raw.startswith("file://"):
        return raw
    if not isinstance(raw, str | PathLike) or not PurePath(raw).is_absolute():
        raise WrongValue("must be a list of absolute paths or file:// URIs")
    return PurePath(raw).as_uri()


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuth:
    """`AUTH` of an entry: by which credential the server is used."""

    type: Annotated[str | None, optional(one_of(AUTH_TYPES))] = None
    """"bearer": TOKEN, or what TOKEN_FUNCTION returns. "oauth": a token that a person allows (authorization code with
    PKCE). "client_credentials": a token for the project itself (OAuth). It has to be given."""
    per: Annotated[str | None, optional(one_of(OWNERS))] = None
    """Whose credential it is. "user": each user of this site has one, and a connection of their own. "project": one for
    all. None: "user" for "oauth", "project" for the others."""
    token: Annotated[str | None, optional(secret)] = field(default=None, repr=False)
    """The token of "bearer"."""
    token_function: OptionalDotted = None
    """Dotted path of a function of the user (None where PER is "project") that returns the token of "bearer", or None
    where there is none. Asked, in a thread, for each connection and again when the server refuses the token."""
    client_id: OptionalText = None
    """OAuth: what this project is called there. None, for "oauth": it registers itself, or is described by
    CLIENT_METADATA_URL."""
    client_secret: Annotated[str | None, optional(secret)] = field(default=None, repr=False)
    """OAuth: by which secret it is known."""
    client_auth: Annotated[str, one_of(CLIENT_AUTH)] = "basic"
    """How that is sent: in the header ("basic") or in the form ("post")."""
    private_key: Annotated[str | None, optional(secret)] = field(default=None, repr=False)
    """"client_credentials": the key (PEM) that this project proves itself with, instead of a secret."""
    algorithm: Annotated[str, one_of(ALGORITHMS)] = "RS256"
    """How it signs."""
    issuer: Annotated[str | None, optional(issuer_name)] = None
    """OAuth: the authorization server that gave the CLIENT_ID. A secret goes to no other, whatever the server says, so
    it has to be named where there is one."""
    client_metadata_url: Annotated[str | None, optional(provider_url)] = None
    """"oauth": an https URL where this project is described as a client, for authorization servers that read it."""
    client_name: OptionalText = None
    """"oauth": what people read when they are asked to allow it. None: "Django"."""
    scopes: Scopes = ()
    """OAuth: scopes to ask for. Nothing, here (): those the server names."""

    @property
    def per_user(self) -> bool:
        """Has each user a credential, and so a connection?"""
        return (self.per or ("user" if self.type == "oauth" else "project")) == "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """One entry. It says where a server is and how it is used; give it a URL or a COMMAND."""

    alias: Text = ""
    """The key of the entry; no option."""
    url: Annotated[str | None, optional(server_url)] = field(default=None, repr=False)
    """Where the server is: https:// or http://, wss:// or ws://."""
    transport: Annotated[str | None, optional(one_of(CLIENT_TRANSPORTS))] = None
    """"http" (Streamable HTTP), "sse" (HTTP+SSE, of older servers) or "websocket". None: what the URL means by itself,
    "http" or "websocket"."""
    headers: Annotated[Mapping[str, str], header_values] = field(default_factory=_nothing, repr=False)
    """Headers of every request."""
    auth: ClientAuth | None = None
    """See ClientAuth. None: no credential but what HEADERS has."""
    command: Annotated[tuple[str, ...] | None, optional(program)] = field(default=None, repr=False)
    """A program that is started and spoken to by its standard input and output, and its arguments: a list."""
    cwd: Annotated[str | None, optional(directory)] = None
    """Where the program is started. None: where this process is."""
    env: Annotated[Mapping[str, str], environment] = field(default_factory=_nothing, repr=False)
    """Variables of its environment, besides the few that every program needs (PATH, HOME, …). It gets no others: those
    of this process may be secrets."""
    protocol_version: Annotated[str | None, optional(one_of((*ERAS, *REVISIONS)))] = None
    """The revision to speak, or an era, "handshake" or "stateless". None: the newest that both know."""
    timeout: Seconds = 60.0
    """Seconds a call may take, unless the call says otherwise."""
    startup_timeout: Seconds = 30.0
    """Seconds until the server must have been reached and have answered."""
    max_retries: Annotated[int, integer(0, 100)] = 3
    """How often a connection that failed is tried again, each time after a longer while."""
    backoff: SecondsOrZero = 10.0
    """Seconds, after a server could not be reached, for which calls fail at once instead of trying it again. It doubles
    with each further failure, to 16 times as long."""
    idle: OptionalSeconds = 300.0
    """Seconds without a call after which a connection is closed, and a program ended. The next call makes it anew.
    None: it stays."""
    max_owners: Count = 100
    """Connections of single users that one process keeps. One more closes the one that was used longest ago."""
    tools: Annotated[tuple[str, ...], several(word)] = ("*",)
    """Names of the tools that `Bridge.from_settings` takes over; * stands for anything."""
    roots: Annotated[tuple[str, ...], root_uris] = ()
    """Directories that the server is told it may look at: absolute paths or file:// URIs. It is told; nothing holds it
    to them."""
    sampling: OptionalDotted = None
    """Dotted path of a function that answers the server's `sampling/createMessage`. None: it may not ask."""
    elicitation: OptionalDotted = None
    """Dotted path of a function that answers the server's `elicitation/create`. None: it may not ask."""
    log_level: OptionalLevel = None
    """The least level of log messages that the server is asked for. None: what it likes."""

    @property
    def kind(self) -> str:
        """The transport: "stdio", "http", "sse" or "websocket"."""
        if self.command is not None:
            return "stdio"
        return self.transport or SCHEMES[urlsplit(self.url or "http:").scheme]

    @property
    def place(self) -> str:
        """Where the server is, for people: a URL without its query, or a program without its arguments, either of
        which may be a secret.
        """
        if self.command is not None:
            more = len(self.command) - 1
            return self.command[0] + (f" ({more} argument{'s' if more > 1 else ''})" if more else "")
        parts = urlsplit(self.url or "")
        return f"{parts.scheme}://{parts.netloc}{parts.path}" + ("?…" if parts.query else "")

    @property
    def per_user(self) -> bool:
        """Has each user a credential, and so a connection?"""
        return self.auth is not None and self.auth.per_user

    @property
    def has_credentials(self) -> bool:
        """Does it send what others should not read?"""
        return self.auth is not None or bool(self.headers) or "?" in (self.url or "")

    @property
    def is_plain(self) -> bool:
        """Does it go over a network without encryption?"""
        plain = self.url is not None and urlsplit(self.url).scheme in ("http", "ws")
        return plain and not is_loopback_url(self.url or "")


def wrong_in_client(client: ClientSettings) -> Iterator[tuple[str, str]]:
    """Key and message of what does not fit together in one entry; a key of AUTH as "AUTH.TOKEN"."""
    if client.url is not None and client.command is not None:
        yield "COMMAND", "starts a server, and URL says where one is: give one of them"
        return
    if client.url is None and client.command is None:
        yield "", "needs a URL or a COMMAND"
        return
    if client.command is not None:
        for key, value in (("TRANSPORT", client.transport), ("HEADERS", client.headers), ("AUTH", client.auth)):
            if value:
                yield key, "is for a URL; a program gets what it needs by ENV"
    else:
        if client.cwd is not None or client.env:
            yield "CWD" if client.cwd is not None else "ENV", "is for a COMMAND, which is not set"
        scheme = (client.url or "").partition(":")[0].lower()
        if client.transport is not None and (SCHEMES[scheme] == "websocket") != (client.transport == "websocket"):
            yield "TRANSPORT", f"{client.transport!r} does not go with a URL that begins with {scheme}"
    if client.auth is not None:
        if any(name.lower() == "authorization" for name in client.headers):
            yield "HEADERS", "has Authorization, which AUTH is to write: give one of them"
        if client.kind == "websocket" and client.auth.type != "bearer":
            yield "AUTH.TYPE", f"is {client.auth.type!r}, which takes HTTP; a WebSocket takes 'bearer'"
            return
        for key, message in _wrong_in_auth(client.auth):
            yield f"AUTH.{key}" if key else "AUTH", message


def _wrong_in_auth(auth: ClientAuth) -> Iterator[tuple[str, str]]:
    if auth.type is None:
        yield "", f"needs a TYPE: {', '.join(map(repr, AUTH_TYPES))}"
        return
    bearer = (("TOKEN", auth.token), ("TOKEN_FUNCTION", auth.token_function))
    oauth = (
        ("CLIENT_ID", auth.client_id),
        ("CLIENT_SECRET", auth.client_secret),
        ("PRIVATE_KEY", auth.private_key),
        ("ISSUER", auth.issuer),
        ("SCOPES", auth.scopes),
    )
    code = (("CLIENT_METADATA_URL", auth.client_metadata_url), ("CLIENT_NAME", auth.client_name))
    strange = {"bearer": (*oauth, *code), "oauth": bearer, "client_credentials": (*bearer, *code)}[auth.type]
    for key, value in strange:
        if value:
            yield key, f"is not for the TYPE {auth.type!r}"
    if auth.type == "bearer":
        if (auth.token is None) == (auth.token_function is None):
            yield "", "takes a TOKEN or a TOKEN_FUNCTION, one of them"
        elif auth.per_user and auth.token is not None:
            yield "TOKEN", "is one for all, and PER says that each user has one: use TOKEN_FUNCTION"
    elif auth.type == "client_credentials":
        if auth.client_id is None or (auth.client_secret is None) == (auth.private_key is None):
            yield "", "takes a CLIENT_ID and a CLIENT_SECRET, or a CLIENT_ID and a PRIVATE_KEY"
        elif auth.issuer is None:
            yield "", "takes the ISSUER that the credentials are for: they go to no other authorization server"
        if auth.per_user:
            yield "PER", "cannot be 'user': client credentials are those of the project"
    elif auth.private_key is not None:
        yield "PRIVATE_KEY", f"is not for the TYPE {auth.type!r}"
    elif auth.client_secret is not None and auth.client_id is None:
        yield "CLIENT_SECRET", "takes a CLIENT_ID"
    elif auth.client_secret is not None and auth.issuer is None:
        yield "CLIENT_SECRET", "takes the ISSUER that it is for: it goes to no other authorization server"
