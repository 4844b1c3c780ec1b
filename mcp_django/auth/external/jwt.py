"""JSON Web Tokens as they arrive: taken apart strictly, before anything in them is believed (RFC 7515, RFC 8725).

What is not written in the one canonical way is no token: padding, spare bits, duplicate names, NaN, numbers without
end, text that no database takes. No signature is looked at here.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Any, Final

from mcp_django.auth.external.strict_json import Malformed, read_object

LONGEST_KID: Final = 512
"""Characters of a key's name."""

_SHAPE = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")
_LEADING_ELSEWHERE = ("crit", "jwk", "jku", "x5u", "b64", "zip", "enc")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Parts:
    """A token in its two readable parts, of which none is proved yet."""

    header: dict[str, Any]
    claims: dict[str, Any]

    @property
    def algorithm(self) -> str:
        """`alg`; empty where it is no text."""
        alg = self.header.get("alg")
        return alg if isinstance(alg, str) else ""

    @property
    def kid(self) -> str | None:
        """The name of the key, None when there is none. Raises Malformed for what can be none."""
        kid = self.header.get("kid")
        if kid is not None and (not isinstance(kid, str) or len(kid) > LONGEST_KID):
            raise Malformed("kid is no text")
        return kid

    @property
    def type(self) -> str:
        """`typ` as it is compared: in small letters, without "application/" (RFC 7515, section 4.1.9)."""
        typ = self.header.get("typ", "")
        if not isinstance(typ, str):
            raise Malformed("typ is no text")
        return typ.lower().removeprefix("application/")


def looks_like_one(token: str) -> bool:
    """Has it the shape of a signed token, whatever is in it? Such a token is for the one who signs, and nobody else."""
    match = _SHAPE.fullmatch(token)
    if match is None:
        return False
    try:
        read_object(_decoded(match[1]))
    except Malformed:
        # Every JSON object begins with a brace: what follows is broken, and no reason to show it to anybody.
        return token.startswith("ey")
    return True


def parse(token: str) -> Parts:
    """Take a token in compact form apart. Raises Malformed.

    A header that says where the key is, or that wants to be understood, makes it malformed: the key comes from the
    issuer's configuration, and there is no extension (RFC 8725, sections 3.9 and 3.10).
    """
    match = _SHAPE.fullmatch(token)
    if match is None:
        raise Malformed("it has not three parts in base64url")
    header, claims = read_object(_decoded(match[1])), read_object(_decoded(match[2]))
    _decoded(match[3])
    if named := next((name for name in _LEADING_ELSEWHERE if name in header), None):
        raise Malformed(f"its header has {named}")
    return Parts(header=header, claims=claims)


def _decoded(part: str) -> bytes:
    """Base64url without padding, in its one form: otherwise one token could be written in several ways."""
    if len(part) % 4 == 1:
        raise Malformed("a part is no base64url")
    raw = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    if urlsafe_b64encode(raw).rstrip(b"=").decode("ascii") != part:
        raise Malformed("a part is no canonical base64url")
    return raw
