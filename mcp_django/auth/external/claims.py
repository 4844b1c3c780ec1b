"""Mapping of an issuer's claims to `TokenClaims`.

The source is a JWT or an introspection response (RFC 7662). The issuer's settings name the claims.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from mcp_django.auth.external.strict_json import MalformedInput
from mcp_django.conf.issuers import IssuerSettings

MAX_SUBJECT_CHARS: Final = 255
"""Maximum length of a subject in characters (OpenID Connect Core 1.0, section 2)."""
MAX_TIMESTAMP_SECONDS: Final = 253402300799.0
"""Latest accepted date: the end of the year 9999, in seconds since the epoch."""

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, section 3.3
_ID_TOKEN_CLAIMS = ("nonce", "at_hash", "c_hash", "s_hash")
_ACCESS_TOKEN_KINDS: Final = {
    # Checked only if present. The values are those of RFC 7662, Keycloak, Hydra and Cognito.
    "token_type": ("bearer", "access_token", "access", "at+jwt"),
    "token_use": ("access", "access_token"),
    "typ": ("bearer", "access", "access_token", "at+jwt", "jwt"),
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TokenClaims:
    """The claims of a verified token, mapped to the names of this project."""

    issuer: str
    subject: str
    client_id: str
    scopes: frozenset[str]
    username: str
    """Empty without the claim."""
    email: str
    """Empty without the claim, or if the address is not verified."""
    expires_at: float | None
    token_id: str | None
    """`jti`, the provider's identifier of the token."""
    claims: Mapping[str, Any]
    """Claims that handlers can read."""


def map_claims(claims: Mapping[str, Any], issuer: IssuerSettings) -> TokenClaims:
    """Map claims by the issuer's settings.

    Raises:
        MalformedInput: the subject is missing or invalid.
    """
    names = issuer.claims
    subject = _get_claim(claims, names.subject)
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARS or not subject.isprintable():
        raise MalformedInput("its subject is invalid")

    verified = _get_first_claim(claims, names.email_verified) is True
    handler_claims = claims if names.extra is None else {name: claims[name] for name in names.extra if name in claims}
    return TokenClaims(
        issuer=issuer.issuer,
        subject=subject,
        client_id=_to_text(_get_first_claim(claims, names.client_id)),
        scopes=map_scopes(claims, issuer),
        username=_to_text(_get_first_claim(claims, names.username)),
        email=_to_text(_get_first_claim(claims, names.email)) if verified else "",
        expires_at=get_timestamp(claims, "exp"),
        token_id=_to_text(claims.get("jti")) or None,
        claims=MappingProxyType(dict(handler_claims)),
    )


def map_scopes(claims: Mapping[str, Any], issuer: IssuerSettings) -> frozenset[str]:
    """Return the delegated scopes, as scopes of this project."""
    scopes = {word for name in issuer.claims.scopes for word in _split_scopes(_get_claim(claims, name))}
    if issuer.scopes is not None:
        scopes = {scope for word in scopes for scope in issuer.scopes.get(word, ())}
    return frozenset(scopes)


def check_dates(claims: Mapping[str, Any], issuer: IssuerSettings, now: float) -> None:
    """Check expiry, start and issue date (RFC 7519, section 4.1).

    Raises:
        MalformedInput: the token has expired, is not valid yet, or has an invalid date.
    """
    expires, begins, issued = (get_timestamp(claims, name) for name in ("exp", "nbf", "iat"))
    if expires is not None and expires <= now - issuer.leeway:
        raise MalformedInput("it has expired")
    if any(date is not None and date > now + issuer.leeway for date in (begins, issued)):
        raise MalformedInput("it is not valid yet")


def check_token_kind(claims: Mapping[str, Any]) -> None:
    """Check that this is an access token for a resource server.

    ID tokens and refresh tokens are rejected, and so are tokens that require a proof of possession (RFC 7800), because
    a bearer token has none.

    Raises:
        MalformedInput: another kind of token.
    """
    if any(name in claims for name in _ID_TOKEN_CLAIMS):
        raise MalformedInput("it is an ID token")
    if "cnf" in claims:
        raise MalformedInput("it requires a proof of possession")
    for name, known in _ACCESS_TOKEN_KINDS.items():
        kind = claims.get(name)
        if kind is not None and not (isinstance(kind, str) and kind.lower() in known):
            raise MalformedInput("it is not an access token")


def get_audiences(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the audiences of the token.

    Raises:
        MalformedInput: the claim is missing or invalid.
    """
    raw = claims.get("aud")
    listed = [raw] if isinstance(raw, str) else raw
    if not isinstance(listed, list) or not listed or not all(isinstance(one, str) for one in listed):
        raise MalformedInput("its audience is missing or invalid")
    return tuple(listed)


def get_timestamp(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a date in seconds since the epoch, or None without the claim.

    Raises:
        MalformedInput: an invalid date.
    """
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_TIMESTAMP_SECONDS:
        raise MalformedInput(f"its {name} is not a valid date")
    return float(value)


def _get_claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name or its dotted path.

    The full name wins, because some providers use URLs as names.
    """
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _get_first_claim(claims: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((value for name in names if (value := _get_claim(claims, name)) is not None), None)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= MAX_SUBJECT_CHARS and value.isprintable() else ""


def _split_scopes(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        value = value.split(" ")
    words = value if isinstance(value, list) else ()
    return [word for word in words if isinstance(word, str) and _SCOPE.fullmatch(word)]
