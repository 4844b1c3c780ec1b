"""Settings of `MCP["CLIENTS"]`: the servers that this project uses, by alias.

Each field of `ClientSettings` is a key of an entry, in capitals.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from mcp_django.conf import readers
from mcp_django.conf.issuers import (
    ALGORITHMS,
    CLIENT_AUTH,
    WrongSecret,
    is_loopback_url,
    issuer_name,
    provider_url,
    secret,
    split_url,
)
from mcp_django.protocol.headers import TOKEN_PATTERN
from mcp_django.protocol.revisions import REVISIONS

CLIENT_ALIAS_PATTERN: Final = r"[a-z](?:[a-z0-9-]|_(?=[a-z0-9-])){0,31}"
"""Pattern of aliases: small letters, digits, - and _, at most 32.

The alias precedes "__" in the names of tools, so it neither contains "__" nor ends with "_".
"""
TRANSPORT_BY_SCHEME: Final = {"http": "http", "https": "http", "ws": "websocket", "wss": "websocket"}
"""Default transport by URL scheme."""
CLIENT_TRANSPORTS: Final = ("http", "sse", "websocket")
AUTH_TYPES: Final = ("bearer", "oauth", "client_credentials")
OWNERS: Final = ("user", "project")
RESERVED_HEADERS: Final = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "upgrade", "accept", "last-event-id"}
)
"""Headers set by the transports, in addition to those that begin with "mcp-"."""


_BEARER_KEYS: Final = ("TOKEN", "TOKEN_FUNCTION")
_OAUTH_KEYS: Final = ("CLIENT_ID", "CLIENT_SECRET", "PRIVATE_KEY", "ISSUER", "SCOPES")
_FLOW_KEYS: Final = ("CLIENT_METADATA_URL", "CLIENT_NAME")
_MISPLACED_KEYS: Final = {
    "bearer": (*_OAUTH_KEYS, *_FLOW_KEYS),
    "oauth": _BEARER_KEYS,
    "client_credentials": (*_BEARER_KEYS, *_FLOW_KEYS),
}
"""Keys of AUTH that a type does not use."""


class WrongPart(WrongSecret):
    """A part of the value is invalid. Neither the part nor the value is shown."""


def server_url(raw: Any) -> str:
    # Never shown: the query may contain a key.
    parts = split_url(raw)
    if parts is None or parts.scheme not in TRANSPORT_BY_SCHEME:
        raise WrongPart("must be an absolute URL: https, http, wss or ws")
    if "@" in parts.netloc or "#" in raw:
        raise WrongPart("must not contain credentials or a fragment; set credentials in AUTH or HEADERS")
    return str(raw)


def program(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, str):
        raise WrongSecret("must be a list, such as ['npx', '-y', 'a-server']; it is not run in a shell")
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
        if not isinstance(name, str) or not TOKEN_PATTERN.fullmatch(name):
            raise WrongPart("must have names of headers as its keys")
        if name.lower() in RESERVED_HEADERS or name.lower().startswith("mcp-"):
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
        raise readers.WrongValue("must be the path of a directory")
    return str(fspath(raw))


def root_uris(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, str) or not isinstance(raw, list | tuple):
        raise readers.WrongValue("must be a list of absolute paths or file:// URIs")
    return tuple(dict.fromkeys(_root(item) for item in raw))


def _root(raw: Any) -> str:
    if isinstance(raw, str) and raw.startswith("file://"):
        return raw
    if not isinstance(raw, str | PathLike) or not Path(raw).is_absolute():
        raise readers.WrongValue("must be a list of absolute paths or file:// URIs")
    return Path(raw).as_uri()


def _empty_mapping() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuth:
    """`AUTH` of an entry: the credential for the server."""

    type: Annotated[str | None, readers.optional(readers.one_of(AUTH_TYPES))] = None
    """Type of the credential. Required.

    "bearer": TOKEN, or the result of TOKEN_FUNCTION. "oauth": a token that a user grants (authorization code with
    PKCE). "client_credentials": an OAuth token of the project itself.
    """
    per: Annotated[str | None, readers.optional(readers.one_of(OWNERS))] = None
    """Owner of the credential: "user" or "project".

    "user": each user of this site has a credential and a connection. "project": all users share one. None: "user" for
    "oauth", "project" otherwise.
    """
    token: Annotated[str | None, readers.optional(secret)] = field(default=None, repr=False)
    """Token of "bearer"."""
    token_function: readers.OptionalDotted = None
    """Dotted path of a function of the user that returns the token of "bearer".

    It may return None. The user is None where PER is "project". The function runs in a thread, for each connection and
    again when the server rejects the token.
    """
    client_id: readers.OptionalText = None
    """OAuth client identifier of this project.

    None, for "oauth": the project registers itself, or CLIENT_METADATA_URL describes it.
    """
    client_secret: Annotated[str | None, readers.optional(secret)] = field(default=None, repr=False)
    """OAuth client secret."""
    client_auth: Annotated[str, readers.one_of(CLIENT_AUTH)] = "basic"
    """Transmission of the secret: in the header ("basic") or in the form ("post")."""
    private_key: Annotated[str | None, readers.optional(secret)] = field(default=None, repr=False)
    """Private key (PEM) for "client_credentials", used instead of a secret."""
    algorithm: Annotated[str, readers.one_of(ALGORITHMS)] = "RS256"
    """Signature algorithm for the private key."""
    issuer: Annotated[str | None, readers.optional(issuer_name)] = None
    """Authorization server that issued the CLIENT_ID.

    Required with a secret. The secret is sent to no other authorization server, whatever the MCP server announces.
    """
    client_metadata_url: Annotated[str | None, readers.optional(provider_url)] = None
    """URL (https) of the client metadata of this project, for "oauth".

    Only some authorization servers read it.
    """
    client_name: readers.OptionalText = None
    """Client name on the consent page, for "oauth". None: "Django"."""
    scopes: readers.Scopes = ()
    """OAuth scopes to request. Empty: the scopes that the server names."""

    @property
    def per_user(self) -> bool:
        """Return True if each user has a separate credential and connection."""
        return (self.per or ("user" if self.type == "oauth" else "project")) == "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """An entry of `MCP["CLIENTS"]`: location and use of a server.

    Requires a URL or a COMMAND.
    """

    alias: readers.Text = ""
    """Key of the entry; not an option."""
    url: Annotated[str | None, readers.optional(server_url)] = field(default=None, repr=False)
    """URL of the server: https:// or http://, wss:// or ws://. Required, unless COMMAND is set."""
    transport: Annotated[str | None, readers.optional(readers.one_of(CLIENT_TRANSPORTS))] = None
    """Transport: "http", "sse" or "websocket".

    "http" is Streamable HTTP; "sse" is HTTP+SSE, of older servers. None: the default of the URL's scheme, "http" or
    "websocket".
    """
    headers: Annotated[Mapping[str, str], header_values] = field(default_factory=_empty_mapping, repr=False)
    """Headers of every request."""
    auth: ClientAuth | None = None
    """Credential, see `ClientAuth`. None: only the credentials in HEADERS."""
    command: Annotated[tuple[str, ...] | None, readers.optional(program)] = field(default=None, repr=False)
    """Program and its arguments, as a list, instead of URL.

    The project starts it without a shell. It communicates over standard input and output.
    """
    cwd: Annotated[str | None, readers.optional(directory)] = None
    """Working directory of the program. None: that of this process."""
    env: Annotated[Mapping[str, str], environment] = field(default_factory=_empty_mapping, repr=False)
    """Additional environment variables of the program.

    It also gets the few that every program needs (PATH, HOME, …), but no other variables of this process, because they
    may be secrets.
    """
    protocol_version: Annotated[str | None, readers.optional(readers.one_of((*readers.ERAS, *REVISIONS)))] = None
    """Protocol revision, or an era, "handshake" or "stateless".

    None: the newest common revision.
    """
    timeout: readers.Seconds = 60.0
    """Default timeout of a call in seconds."""
    startup_timeout: readers.Seconds = 30.0
    """Seconds until the server must have responded for the first time."""
    max_retries: Annotated[int, readers.integer(0, 100)] = 3
    """Maximum number of retries of a failed connection, with increasing delays."""
    backoff: readers.SecondsOrZero = 10.0
    """Seconds for which calls fail at once after the server was unreachable.

    The time doubles with each further failure, up to 16 times. 0: each call connects.
    """
    idle: readers.OptionalSeconds = 300.0
    """Seconds without a call after which a connection is closed and a program stopped.

    The next call connects again. None: never.
    """
    max_owners: readers.Count = 100
    """Maximum number of connections of single users in one process.

    A further one closes the least recently used.
    """
    tools: Annotated[tuple[str, ...], readers.tuple_of(readers.word)] = ("*",)
    """Names of the tools that `Bridge.from_settings` includes; * matches anything."""
    roots: Annotated[tuple[str, ...], root_uris] = ()
    """Directories announced to the server as roots: absolute paths or file:// URIs.

    The list is information only; the server's access is not restricted to them.
    """
    sampling: readers.OptionalDotted = None
    """Dotted path of the handler of the server's `sampling/createMessage`.

    None: not offered. A plain function runs in a thread, where it may use the ORM.
    """
    elicitation: readers.OptionalDotted = None
    """Dotted path of the handler of the server's `elicitation/create`.

    None: not offered. A plain function runs in a thread, where it may use the ORM.
    """
    log_level: readers.OptionalLevel = None
    """Minimum level of log messages requested from the server.

    None: the server's default.
    """

    @property
    def kind(self) -> str:
        """Transport: "stdio", "http", "sse" or "websocket"."""
        if self.command is not None:
            return "stdio"
        return self.transport or TRANSPORT_BY_SCHEME[urlsplit(self.url or "http:").scheme]

    @property
    def display_location(self) -> str:
        """Location of the server, for people.

        A URL without its query, or a program without its arguments, because either may contain a secret.
        """
        if self.command is not None:
            program, *arguments = self.command
            if not arguments:
                return program
            return f"{program} ({len(arguments)} argument{'s' if len(arguments) > 1 else ''})"
        parts = urlsplit(self.url or "")
        return f"{parts.scheme}://{parts.netloc}{parts.path}" + ("?…" if parts.query else "")

    @property
    def per_user(self) -> bool:
        """Return True if each user has a separate credential and connection."""
        return self.auth is not None and self.auth.per_user

    @property
    def has_credentials(self) -> bool:
        """Return True if requests contain secrets."""
        return self.auth is not None or bool(self.headers) or "?" in (self.url or "")

    @property
    def is_unencrypted(self) -> bool:
        """Return True if it uses a network without encryption."""
        plain = self.url is not None and urlsplit(self.url).scheme in ("http", "ws")
        return plain and not is_loopback_url(self.url or "")


def find_client_problems(client: ClientSettings) -> Iterator[tuple[str, str]]:
    """Yield key and message of each conflict within an entry.

    A key of AUTH has the form "AUTH.TOKEN".
    """
    if client.url is not None and client.command is not None:
        yield "COMMAND", "starts a server, and URL points to one: set only one of them"
    elif client.url is None and client.command is None:
        yield "", "needs a URL or a COMMAND"
    else:
        yield from _find_transport_problems(client)
        if client.auth is not None:
            yield from _find_credential_problems(client, client.auth)


def _find_transport_problems(client: ClientSettings) -> Iterator[tuple[str, str]]:
    if client.command is not None:
        for key, value in (("TRANSPORT", client.transport), ("HEADERS", client.headers), ("AUTH", client.auth)):
            if value:
                yield key, "is for a URL; use ENV for a program"
        return

    if client.cwd is not None or client.env:
        yield "CWD" if client.cwd is not None else "ENV", "requires a COMMAND"
    scheme = (client.url or "").partition(":")[0].lower()
    is_websocket = TRANSPORT_BY_SCHEME[scheme] == "websocket"
    if client.transport is not None and is_websocket != (client.transport == "websocket"):
        yield "TRANSPORT", f"{client.transport!r} does not match a URL that begins with {scheme}"


def _find_credential_problems(client: ClientSettings, auth: ClientAuth) -> Iterator[tuple[str, str]]:
    if any(name.lower() == "authorization" for name in client.headers):
        yield "HEADERS", "has Authorization, which AUTH sets: set only one of them"
    if client.kind == "websocket" and auth.type != "bearer":
        yield "AUTH.TYPE", f"is {auth.type!r}, which requires HTTP; use 'bearer' for a WebSocket"
        return
    if auth.type is None:
        yield "AUTH", f"needs a TYPE: {', '.join(map(repr, AUTH_TYPES))}"
        return

    for key in _MISPLACED_KEYS[auth.type]:
        if getattr(auth, key.lower()):
            yield f"AUTH.{key}", f"is not for the TYPE {auth.type!r}"
    conflicts = [(key, message) for is_conflict, key, message in _list_auth_conflicts(auth) if is_conflict]
    for key, message in conflicts[:1]:
        yield f"AUTH.{key}" if key else "AUTH", message
    if auth.type == "client_credentials" and auth.per_user:
        yield "AUTH.PER", "cannot be 'user': client credentials belong to the project"


def _list_auth_conflicts(auth: ClientAuth) -> list[tuple[bool, str, str]]:
    """Return the possible conflicts of a type: whether it exists, its key and its message.

    Only the first one is reported, because the others may follow from it.
    """
    has_secret = auth.client_secret is not None
    if auth.type == "bearer":
        has_one = (auth.token is None) != (auth.token_function is None)
        shares = auth.per_user and auth.token is not None
        return [
            (not has_one, "", "requires either a TOKEN or a TOKEN_FUNCTION"),
            (shares, "TOKEN", "is shared by all users, but PER is 'user': use TOKEN_FUNCTION"),
        ]
    if auth.type == "client_credentials":
        has_credentials = auth.client_id is not None and has_secret != (auth.private_key is not None)
        issuer_message = "requires the ISSUER of the credentials: they are sent to no other authorization server"
        return [
            (not has_credentials, "", "requires a CLIENT_ID with either a CLIENT_SECRET or a PRIVATE_KEY"),
            (auth.issuer is None, "", issuer_message),
        ]
    issuer_message = "requires its ISSUER: it is sent to no other authorization server"
    return [
        (auth.private_key is not None, "PRIVATE_KEY", f"is not for the TYPE {auth.type!r}"),
        (has_secret and auth.client_id is None, "CLIENT_SECRET", "requires a CLIENT_ID"),
        (has_secret and auth.issuer is None, "CLIENT_SECRET", issuer_message),
    ]
