"""Strict parsing of JSON Web Tokens, before their content is trusted.

See RFC 7515 and RFC 8725. Only canonical tokens are accepted: no padding, no surplus bits, no duplicate names, no NaN,
no oversized numbers, no text that a database rejects. Signatures are not checked here.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from mcp_django.auth.external.strict_json import MalformedInput, parse_object
from mcp_django.crypto import decode_base64url

MAX_KID_CHARS: Final = 512
"""Maximum length of a key identifier in characters."""

_SHAPE = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")
_FORBIDDEN_HEADERS = ("crit", "jwk", "jku", "x5u", "b64", "zip", "enc")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ParsedToken:
    """Header and claims of a token, not yet verified."""

    header: dict[str, Any]
    claims: dict[str, Any]

    @property
    def algorithm(self) -> str:
        """`alg`; empty if it is not a string."""
        alg = self.header.get("alg")
        return alg if isinstance(alg, str) else ""

    @property
    def kid(self) -> str | None:
        """Key identifier; None without one. Raises MalformedInput for an invalid one."""
        kid = self.header.get("kid")
        if kid is not None and (not isinstance(kid, str) or len(kid) > MAX_KID_CHARS):
            raise MalformedInput("kid is not a string")
        return kid

    @property
    def type(self) -> str:
        """`typ` in the form used for comparison.

        Lower case, without "application/" (RFC 7515, section 4.1.9).
        """
        typ = self.header.get("typ", "")
        if not isinstance(typ, str):
            raise MalformedInput("typ is not a string")
        return typ.lower().removeprefix("application/")


def is_jwt_shaped(token: str) -> bool:
    """Return True if the token has the shape of a signed token, whatever its content.

    Such a token is sent only to the issuer that it names.
    """
    match = _SHAPE.fullmatch(token)
    if match is None:
        return False
    try:
        parse_object(_decode_base64url(match[1]))
    except MalformedInput:
        # Every JSON object begins with a brace. The rest is malformed, but the token must not be sent to any provider.
        return token.startswith("ey")
    return True


def parse_jwt(token: str) -> ParsedToken:
    """Parse a token in compact form.

    A header that locates the key, or requires an extension, is rejected. The key comes from the issuer's configuration,
    and no extensions are supported (RFC 8725, sections 3.9 and 3.10).

    Raises:
        MalformedInput: an invalid token.
    """
    match = _SHAPE.fullmatch(token)
    if match is None:
        raise MalformedInput("it does not have three parts in base64url")
    header, claims = parse_object(_decode_base64url(match[1])), parse_object(_decode_base64url(match[2]))
    _decode_base64url(match[3])
    if forbidden := next((name for name in _FORBIDDEN_HEADERS if name in header), None):
        raise MalformedInput(f"its header has the forbidden parameter {forbidden}")
    return ParsedToken(header=header, claims=claims)


def _decode_base64url(part: str) -> bytes:
    try:
        return decode_base64url(part)
    except ValueError:
        raise MalformedInput("a part is not canonical base64url") from None
