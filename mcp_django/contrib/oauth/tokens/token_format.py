"""What the server's tokens look like: `mcp_at_<secret><checksum>`, and `mcp_rt_…` for refresh tokens.

By the beginning scanners for leaked secrets find them and verifiers know whose they are; the checksum tells a token
from a typing error without asking the database. The secret has 256 bits, and only its hash is stored.
"""

import hashlib
import re
from typing import Any

from mcp_django.models.token import CHECKSUM_LENGTH, checksum, random_text

ACCESS, REFRESH = "mcp_at_", "mcp_rt_"
SECRET_LENGTH = 43

_SHAPE = re.compile(rf"mcp_[ar]t_[0-9A-Za-z]{{{SECRET_LENGTH + CHECKSUM_LENGTH}}}")


def access_token(request: Any, **_: Any) -> str:
    """A new access token; what oauthlib asks it for does not matter."""
    return _new(ACCESS)


def refresh_token(request: Any, **_: Any) -> str:
    """A new refresh token."""
    return _new(REFRESH)


def is_access_token(token: str) -> bool:
    """Can this be an access token of ours? Its checksum holds; whether it exists is another question."""
    return token.startswith(ACCESS) and _is_whole(token)


def digest(token: str) -> str:
    """What the tables hold of a token or code: hexadecimal, 64 characters."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _new(mark: str) -> str:
    body = mark + random_text(SECRET_LENGTH)
    return body + checksum(body)


def _is_whole(token: str) -> bool:
    return _SHAPE.fullmatch(token) is not None and checksum(token[:-CHECKSUM_LENGTH]) == token[-CHECKSUM_LENGTH:]
