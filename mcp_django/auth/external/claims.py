"""What an issuer says of a token, in our words: from the claims of a JWT, or from an answer of RFC 7662, by the names
that the issuer's settings give.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from mcp_django.auth.external.strict_json import Malformed
from mcp_django.conf.issuers import Issuer

LONGEST_SUBJECT: Final = 255
"""Characters (OpenID Connect Core 1.0, section 2, allows no more)."""
LAST_MOMENT: Final = 253402300799.0
"""The end of the year 9999, in seconds since the epoch: later is no date."""

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, section 3.3
_ID_TOKEN_CLAIMS = ("nonce", "at_hash", "c_hash", "s_hash")
_ACCESS: Final = {
    # Only if it is said; the names are those of RFC 7662 and of Keycloak, Hydra and Cognito.
    "token_type": ("bearer", "access_token", "access", "at+jwt"),
    "token_use": ("access", "access_token"),
    "typ": ("bearer", "access", "access_token", "at+jwt", "jwt"),
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Said:
    """Whom a token stands for."""

    issuer: str
    subject: str
    client_id: str
    scopes: frozenset[str]
    username: str
    """Empty when it is not said."""
    email: str
    """Empty when it is not said, or not verified."""
    expires_at: float | None
    token_id: str | None
    """`jti`, by which the provider knows the token."""
    claims: Mapping[str, Any]
    """What handlers are shown."""


def read(claims: Mapping[str, Any], issuer: Issuer) -> Said:
    """Raises Malformed without a subject that can be one."""
    names = issuer.claims
    subject = _at(claims, names.subject)
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
        raise Malformed("its subject is none")
    verified = _first(claims, names.email_verified) is True
    shown = claims if names.extra is None else {name: claims[name] for name in names.extra if name in claims}
    return Said(
        issuer=issuer.issuer,
        subject=subject,
        client_id=_text(_first(claims, names.client_id)),
        scopes=scopes_of(claims, issuer),
        username=_text(_first(claims, names.username)),
        email=_text(_first(claims, names.email)) if verified else "",
        expires_at=moment(claims, "exp"),
        token_id=_text(claims.get("jti")) or None,
        claims=MappingProxyType(dict(shown)),
    )


def scopes_of(claims: Mapping[str, Any], issuer: Issuer) -> frozenset[str]:
    """What was delegated, in this project's scopes."""
    said = {word for name in issuer.claims.scopes for word in _words(_at(claims, name))}
    if issuer.scopes is not None:
        said = {scope for word in said for scope in issuer.scopes.get(word, ())}
    return frozenset(said)


def check_dates(claims: Mapping[str, Any], issuer: Issuer, now: float) -> None:
    """Raise Malformed for what has ended or not begun, or whose dates are none (RFC 7519, section 4.1)."""
    expires, begins, issued = (moment(claims, name) for name in ("exp", "nbf", "iat"))
    if expires is not None and expires <= now - issuer.leeway:
        raise Malformed("it has expired")
    if any(date is not None and date > now + issuer.leeway for date in (begins, issued)):
        raise Malformed("it is not valid yet")


def check_kind(claims: Mapping[str, Any]) -> None:
    """Raise Malformed for tokens that are not for resource servers, ID tokens and refresh tokens, and for those that
    only count with a proof of who holds them (RFC 7800), of which a bearer sends none.
    """
    if any(name in claims for name in _ID_TOKEN_CLAIMS):
        raise Malformed("it is an ID token")
    if "cnf" in claims:
        raise Malformed("it takes a proof of possession")
    for name, known in _ACCESS.items():
        kind = claims.get(name)
        if kind is not None and not (isinstance(kind, str) and kind.lower() in known):
            raise Malformed("it is no access token")


def audiences_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Whom it is for. Raises Malformed when it does not say."""
    raw = claims.get("aud")
    listed = [raw] if isinstance(raw, str) else raw
    if not isinstance(listed, list) or not listed or not all(isinstance(one, str) for one in listed):
        raise Malformed("it does not say whom it is for")
    return tuple(listed)


def moment(claims: Mapping[str, Any], name: str) -> float | None:
    """A date, in seconds since the epoch; None when there is none. Raises Malformed for what is no date."""
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LAST_MOMENT:
        raise Malformed(f"its {name} is no date")
    return float(value)


def _at(claims: Mapping[str, Any], name: str) -> Any:
    """A claim of that name, or what its dots lead to. There are providers whose names of claims are URLs."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _first(claims: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((value for name in names if (value := _at(claims, name)) is not None), None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= LONGEST_SUBJECT and value.isprintable() else ""


def _words(value: Any) -> Iterable[str]:
    words = value.split(" ") if isinstance(value, str) else value if isinstance(value, list) else ()
    return [word for word in words if isinstance(word, str) and _SCOPE.fullmatch(word)]
