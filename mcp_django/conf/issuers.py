"""Settings of `MCP["ISSUERS"]`: identity providers whose tokens are accepted.

Each field of `IssuerSettings` is a key of an entry, in capitals.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urlsplit

from mcp_django.conf import readers

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LINK_METHODS: Final = ("email", "username", "create")
CLIENT_AUTH: Final = ("basic", "post")
OWN_TOKEN_PREFIX: Final = "mcp_"
"""Prefix of this project's own tokens, which are never sent to a provider."""
MAX_ISSUER_CHARS: Final = 255
"""Maximum length of an issuer's URL in characters."""


class WrongSecret(readers.WrongValue):
    """An invalid value that must not be shown."""


def is_loopback_url(url: str) -> bool:
    """Return True if the host of the URL is this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def split_url(url: object) -> SplitResult | None:
    """Return the parts of a printable URL with a host and a valid port; None for anything else."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for an invalid port
    except ValueError:
        return None
    return parts if parts.hostname else None


def is_provider_url(url: str, *, plain: bool = True) -> bool:
    """Return True for an absolute https URL without credentials and fragment.

    With `plain` an http URL of this machine is allowed as well.
    """
    parts = split_url(url)
    if parts is None or "@" in parts.netloc or "#" in url:
        return False
    return parts.scheme == "https" or (plain and parts.scheme == "http" and is_loopback_url(url))


def provider_url(raw: Any) -> str:
    if not isinstance(raw, str) or not is_provider_url(raw):
        # Not shown where it may contain a password.
        wrong = WrongSecret if isinstance(raw, str) and "@" in raw else readers.WrongValue
        raise wrong("must be an https URL, or an http URL of this machine, without credentials and fragment")
    return raw


def issuer_name(raw: Any) -> str:
    name = provider_url(raw)
    if "?" in name or len(name) > MAX_ISSUER_CHARS:
        raise readers.WrongValue(f"must be a URL of at most {MAX_ISSUER_CHARS} characters without a query")
    return name


def seconds_between(minimum: float, maximum: float) -> readers.Reader:
    def read(raw: Any) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not minimum <= raw <= maximum:
            raise readers.WrongValue(f"must be a number of seconds from {minimum:g} to {maximum:g}")
        return float(raw)

    return read


def secret(raw: Any) -> str:
    if not isinstance(raw, str) or not raw:
        raise WrongSecret("must be a string that is not empty")
    return raw


def audience_lists(raw: Any) -> Mapping[str, tuple[str, ...]]:
    """Read audiences by the alias of a server; the key "" applies to every server."""
    read = readers.tuple_of(readers.word)
    if not isinstance(raw, Mapping):
        return MappingProxyType({"": read(raw)})
    if not all(isinstance(alias, str) and re.fullmatch(readers.ALIAS_PATTERN, alias) for alias in raw):
        raise readers.WrongValue("must be a list, or a dict of lists by the alias of a server")
    return MappingProxyType({alias: read(listed) for alias, listed in raw.items()})


def scope_map(raw: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(raw, Mapping) or not all(isinstance(name, str) for name in raw):
        raise readers.WrongValue("must be a dict from scopes or roles of the provider to a scope, or a list of scopes")
    read = readers.one_or_more(scope)
    return MappingProxyType({name: read(to) for name, to in raw.items()})


def names(raw: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = readers.one_or_more(readers.word)(raw)
    if not found:
        raise readers.WrongValue("must name at least one claim")
    return found


def readable_file(raw: Any) -> str:
    if not isinstance(raw, str | Path) or not Path(raw).is_file():
        raise readers.WrongValue("must be the path of a file of certificates (PEM)")
    return str(raw)


scope = readers.matching(r"[\x21\x23-\x5b\x5d-\x7e]+", "a scope, which is one word without quotes and backslashes")
token_prefix = readers.matching(r"[A-Za-z0-9._~+/-]+", "the beginning of a token")

Names = Annotated[tuple[str, ...], names]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimNames:
    """`CLAIMS` of an entry: names of the provider's claims.

    Each option is the name of a claim, or a list of names, of which the first one present is used. A name with dots
    also leads into objects, such as "realm_access.roles".
    """

    subject: readers.Text = "sub"
    """Subject: one claim, unique and never reassigned, as `sub` is.

    Not an e-mail address.
    """
    scopes: Names = ("scope", "scp", "scopes")
    """Delegated scopes: a string with spaces, or a list.

    All claims present are merged.
    """
    client_id: Names = ("client_id", "azp", "cid", "appid")
    """Identifier of the program that the caller uses."""
    username: Names = ("preferred_username", "username")
    """Username, for LINK."""
    email: Names = ("email",)
    """E-mail address, for LINK. Used only if it is verified."""
    email_verified: Names = ("email_verified",)
    """Verification of the e-mail address. Must be true."""
    extra: Annotated[tuple[str, ...] | None, readers.optional(readers.tuple_of(readers.word))] = None
    """Claims that handlers read in `principal.claims`; None for all claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSettings:
    """An entry of `MCP["ISSUERS"]`: an identity provider."""

    issuer: Annotated[str, issuer_name] = ""
    """Value of `iss`, exactly as the provider writes it.

    A trailing slash is significant.
    """
    jwks_uri: Annotated[str | None, readers.optional(provider_url)] = None
    """URL of its keys."""
    discovery: Annotated[str | None, readers.optional(provider_url)] = None
    """URL of its discovery document, which names its keys.

    The document follows RFC 8414 or OpenID Connect. Without DISCOVERY, JWKS_URI and INTROSPECTION_URL the well-known
    URLs of the two standards are tried.
    """
    algorithms: Annotated[tuple[str, ...], readers.nonempty_tuple_of(ALGORITHMS, "algorithm")] = ("RS256", "ES256")
    """Accepted signature algorithms; asymmetric ones only."""
    audiences: Annotated[Mapping[str, tuple[str, ...]], audience_lists] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Accepted values of `aud`, in addition to the URL of the server.

    A list, or lists by the alias of a server, or by the `audience` of a BearerAuthentication.
    """
    require_type: readers.Flag = True
    """Require that the header declares an access token ("at+jwt", RFC 9068).

    Many providers do not. False also accepts "JWT" and a missing type, and recognizes ID tokens by their claims.
    """
    leeway: Annotated[float, seconds_between(0, 300)] = 30.0
    """Maximum difference of the provider's clock in seconds."""
    claims: ClaimNames = field(default_factory=ClaimNames)
    """Names of its claims."""
    scopes: Annotated[Mapping[str, tuple[str, ...]] | None, readers.optional(scope_map)] = None
    """Scopes of this project by scope or role of the provider.

    Unknown ones are dropped. None: unchanged.
    """
    link: Annotated[tuple[str, ...], readers.tuple_of(readers.one_of(LINK_METHODS))] = ()
    """Link methods for a subject without an ExternalIdentity, in order.

    "email" and "username" link the matching account, unless it belongs to staff or a superuser. "create" creates an
    account. Empty: refuse.
    """
    require_user: readers.Flag = True
    """Refuse subjects without a linked account.

    False: serve them without a user, without tools that need permissions.
    """
    introspection_url: Annotated[str | None, readers.optional(provider_url)] = None
    """Introspection endpoint (RFC 7662), for opaque tokens.

    Also for its JWTs if neither JWKS_URI nor DISCOVERY is set.
    """
    client_id: readers.OptionalText = None
    """Client identifier for introspection."""
    client_secret: Annotated[str | None, readers.optional(secret)] = field(default=None, repr=False)
    """Client secret for introspection."""
    client_auth: Annotated[str, readers.one_of(CLIENT_AUTH)] = "basic"
    """Transmission of the secret: in the header ("basic") or in the form ("post")."""
    prefix: Annotated[str | None, readers.optional(token_prefix)] = None
    """Prefix of its opaque tokens.

    None: all opaque tokens, so only one entry can omit it.
    """
    introspection_cache: Annotated[float, seconds_between(0, 60)] = 0.0
    """Seconds for which an introspection response is cached.

    They add to TOKEN_CACHE_SECONDS.
    """
    ca_file: Annotated[str | None, readers.optional(readable_file)] = None
    """File of certificates (PEM) to trust for its URLs instead of the default ones."""

    @property
    def has_keys(self) -> bool:
        """Return True if its JWTs are verified with its keys."""
        return self.introspection_url is None or self.jwks_uri is not None or self.discovery is not None


def find_issuer_problems(issuer: IssuerSettings) -> Iterator[tuple[str, str]]:
    """Yield key and message of each conflict within an entry."""
    if issuer.jwks_uri is not None and issuer.discovery is not None:
        yield "DISCOVERY", "and JWKS_URI both locate the keys: set only one of them"
    if issuer.introspection_url is None:
        for key, value in (("CLIENT_ID", issuer.client_id), ("CLIENT_SECRET", issuer.client_secret)):
            if value is not None:
                yield key, "requires INTROSPECTION_URL"
        if issuer.prefix is not None:
            yield "PREFIX", "is for opaque tokens, which require an INTROSPECTION_URL"
    elif issuer.client_id is None or issuer.client_secret is None:
        yield "INTROSPECTION_URL", "requires a CLIENT_ID and a CLIENT_SECRET"
    if issuer.prefix is not None and _can_overlap(issuer.prefix, OWN_TOKEN_PREFIX):
        yield "PREFIX", f"must not overlap with {OWN_TOKEN_PREFIX!r}, the prefix of this project's own tokens"


def find_issuer_conflicts(issuer: IssuerSettings, earlier: Sequence[IssuerSettings]) -> Iterator[tuple[str, str]]:
    """Yield key and message of each conflict with earlier entries."""
    if any(other.issuer == issuer.issuer for other in earlier):
        yield "ISSUER", "is the same as in an earlier entry"
    introspecting = [other for other in earlier if other.introspection_url is not None]
    if issuer.introspection_url is not None and any(
        _can_overlap(issuer.prefix, other.prefix) for other in introspecting
    ):
        yield "PREFIX", "must distinguish its opaque tokens from those of other entries with an INTROSPECTION_URL"


def _can_overlap(one: str | None, other: str | None) -> bool:
    """Return True if a token can begin with both prefixes."""
    return not one or not other or one.startswith(other) or other.startswith(one)
