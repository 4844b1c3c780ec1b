"""`MCP["ISSUERS"]`: the identity providers whose tokens are accepted. Each field of `Issuer` is a key of an entry, in
capitals.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from mcp_django.conf.readers import (
    ALIAS,
    Flag,
    OptionalText,
    Reader,
    Text,
    WrongValue,
    matching,
    one_of,
    optional,
    several,
    some_of,
    word,
)

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LINKS: Final = ("email", "username", "create")
CLIENT_AUTH: Final = ("basic", "post")
OWN_TOKENS: Final = "mcp_"
"""How the tokens of this project itself begin; they are shown to no provider."""
LONGEST: Final = 255
"""Characters of an issuer's name."""


class WrongSecret(WrongValue):
    """The value cannot be used, and is not to be shown."""


def is_loopback_url(url: str) -> bool:
    """Is the host this machine?"""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_provider_url(url: str, *, plain: bool = True) -> bool:
    """Is it an absolute URL by https, or with `plain` by http on this machine? Without credentials and fragment."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for what is no port
    except ValueError:
        return False
    if not parts.hostname or "@" in parts.netloc or "#" in url:
        return False
    return parts.scheme == "https" or (plain and parts.scheme == "http" and is_loopback_url(url))


def provider_url(raw: Any) -> str:
    if not isinstance(raw, str) or not is_provider_url(raw):
        # Not shown where it may hold a password.
        wrong = WrongSecret if isinstance(raw, str) and "@" in raw else WrongValue
        raise wrong("must be an https URL, or an http URL of this machine, without credentials and fragment")
    return raw


def issuer_name(raw: Any) -> str:
    name = provider_url(raw)
    if "?" in name or len(name) > LONGEST:
        raise WrongValue(f"must be a URL of at most {LONGEST} characters without a query")
    return name


def between(least: float, most: float) -> Reader:
    def read(raw: Any) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not least <= raw <= most:
            raise WrongValue(f"must be a number of seconds from {least:g} to {most:g}")
        return float(raw)

    return read


def secret(raw: Any) -> str:
    if not isinstance(raw, str) or not raw:
        raise WrongSecret("must be a string that is not empty")
    return raw


def audience_lists(raw: Any) -> Mapping[str, tuple[str, ...]]:
    """By the alias of a server; under "" those of every server."""
    read = several(word)
    if not isinstance(raw, Mapping):
        return MappingProxyType({"": read(raw)})
    if not all(isinstance(alias, str) and re.fullmatch(ALIAS, alias) for alias in raw):
        raise WrongValue("must be a list, or a dict of lists by the alias of a server")
    return MappingProxyType({alias: read(listed) for alias, listed in raw.items()})


def scope_map(raw: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(raw, Mapping) or not all(isinstance(name, str) for name in raw):
        raise WrongValue("must be a dict from what the provider says to the scope, or list of scopes, that it means")
    read = several(scope)
    return MappingProxyType({name: read([to] if isinstance(to, str) else to) for name, to in raw.items()})


def names(raw: Any) -> tuple[str, ...]:
    listed = [raw] if isinstance(raw, str) else raw
    found: tuple[str, ...] = several(word)(listed)
    if not found:
        raise WrongValue("must name at least one claim")
    return found


def readable_file(raw: Any) -> str:
    if not isinstance(raw, str | Path) or not Path(raw).is_file():
        raise WrongValue("must be the path of a file of certificates (PEM)")
    return str(raw)


scope = matching(r"[\x21\x23-\x5b\x5d-\x7e]+", "a scope, which is one word without quotes and backslashes")
token_prefix = matching(r"[A-Za-z0-9._~+/-]+", "the beginning of a token")

Names = Annotated[tuple[str, ...], names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """`CLAIMS` of an entry: where the provider says what. Each is the name of a claim, or a list of them, of which the
    first that is there counts. A name with dots also leads into objects, such as "realm_access.roles".
    """

    subject: Text = "sub"
    """Who it is: one name; unique and never given to another, as `sub` is. No e-mail address."""
    scopes: Names = ("scope", "scp")
    """What was delegated: a text with spaces, or a list. Of several all count."""
    client_id: Names = ("client_id", "azp", "cid", "appid")
    """The program that the caller uses."""
    username: Names = ("preferred_username", "username")
    """For LINK."""
    email: Names = ("email",)
    """For LINK, and only where it is verified."""
    email_verified: Names = ("email_verified",)
    """Must be true, else there is no e-mail address."""
    extra: Annotated[tuple[str, ...] | None, optional(several(word))] = None
    """What handlers see as `principal.claims`; None for everything that was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """One entry."""

    issuer: Annotated[str, issuer_name] = ""
    """`iss`, exactly as the provider writes it, with or without a slash at the end."""
    jwks_uri: Annotated[str | None, optional(provider_url)] = None
    """Where its keys are."""
    discovery: Annotated[str | None, optional(provider_url)] = None
    """Its discovery document (RFC 8414 or OpenID Connect), which names its keys. With neither this nor JWKS_URI nor
    INTROSPECTION_URL it is looked for where the two standards say."""
    algorithms: Annotated[tuple[str, ...], some_of(ALGORITHMS, "algorithm")] = ("RS256", "ES256")
    """Algorithms of signatures that are accepted. Asymmetric ones only."""
    audiences: Annotated[Mapping[str, tuple[str, ...]], audience_lists] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """What `aud` may be besides the URL of the server: a list, or lists by the alias of a server, or by the
    `audience` of a BearerAuthentication."""
    require_type: Flag = True
    """Must the header say that it is an access token ("at+jwt", RFC 9068)? Many providers do not; False takes "JWT" and
    nothing too, and tells ID tokens by what is in them."""
    leeway: Annotated[float, between(0, 300)] = 30.0
    """Seconds by which the provider's clock may differ."""
    claims: Claims = field(default_factory=Claims)
    """Where it says what."""
    scopes: Annotated[Mapping[str, tuple[str, ...]] | None, optional(scope_map)] = None
    """What its scopes or roles stand for here; what is not in it, is dropped. None takes them as they are."""
    link: Annotated[tuple[str, ...], several(one_of(LINKS))] = ()
    """What to do with somebody without an ExternalIdentity, in this order: "email" or "username" links the account of
    that name, unless it is staff or a superuser's; "create" makes one. Nothing, here (): refuse."""
    require_user: Flag = True
    """Refuse whom no account is linked to? False serves them without a user: tools that need permissions are not for
    them."""
    introspection_url: Annotated[str | None, optional(provider_url)] = None
    """Where it answers for tokens (RFC 7662): for opaque ones, and for its JWTs too if neither JWKS_URI nor DISCOVERY
    is set."""
    client_id: OptionalText = None
    """Who asks there."""
    client_secret: Annotated[str | None, optional(secret)] = field(default=None, repr=False)
    """By which secret."""
    client_auth: Annotated[str, one_of(CLIENT_AUTH)] = "basic"
    """How it is sent: in the header ("basic") or in the form ("post")."""
    prefix: Annotated[str | None, optional(token_prefix)] = None
    """How its opaque tokens begin. None: all opaque tokens are its own, so that only one entry can leave it out."""
    introspection_cache: Annotated[float, between(0, 60)] = 0.0
    """Seconds for which an answer of INTROSPECTION_URL is trusted, on top of TOKEN_CACHE_SECONDS."""
    ca_file: Annotated[str | None, optional(readable_file)] = None
    """Certificates (PEM) to trust for its URLs instead of the usual ones."""

    @property
    def has_keys(self) -> bool:
        """Are its JWTs verified here, by its keys?"""
        return self.introspection_url is None or self.jwks_uri is not None or self.discovery is not None


def wrong_together(issuer: Issuer) -> Iterator[tuple[str, str]]:
    """Key and message of what does not fit together in one entry."""
    if issuer.jwks_uri is not None and issuer.discovery is not None:
        yield "DISCOVERY", "is for finding the keys, and JWKS_URI says where they are: give one of them"
    if issuer.introspection_url is None:
        for key, value in (("CLIENT_ID", issuer.client_id), ("CLIENT_SECRET", issuer.client_secret)):
            if value is not None:
                yield key, "is for INTROSPECTION_URL, which is not set"
        if issuer.prefix is not None:
            yield "PREFIX", "is for opaque tokens, which take an INTROSPECTION_URL"
    elif issuer.client_id is None or issuer.client_secret is None:
        yield "INTROSPECTION_URL", "takes a CLIENT_ID and a CLIENT_SECRET"
    if issuer.prefix is not None and _overlap(issuer.prefix, OWN_TOKENS):
        yield "PREFIX", f"must not begin as {OWN_TOKENS!r} does, by which this project knows its own tokens"


def wrong_beside(issuer: Issuer, earlier: Sequence[Issuer]) -> Iterator[tuple[str, str]]:
    """Key and message of what does not fit with the entries before."""
    if any(other.issuer == issuer.issuer for other in earlier):
        yield "ISSUER", "is that of an entry before"
    asked = [other for other in earlier if other.introspection_url is not None]
    if issuer.introspection_url is not None and any(_overlap(issuer.prefix, other.prefix) for other in asked):
        yield "PREFIX", "must tell its opaque tokens from those of the other entries with an INTROSPECTION_URL"


def _overlap(one: str | None, other: str | None) -> bool:
    """Can a token begin with both?"""
    return not one or not other or one.startswith(other) or other.startswith(one)
