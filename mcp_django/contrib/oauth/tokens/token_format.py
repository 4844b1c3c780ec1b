"""Format of tokens: `mcp_at_<secret><checksum>`, and `mcp_rt_…` for refresh tokens.

The prefix lets scanners for leaked secrets find tokens, and verifiers recognize them. The checksum detects typing
errors without a database query. The secret has 256 bits, and only its hash is stored.
"""

import hashlib
import re
from typing import Any

from mcp_django.models.token import CHECKSUM_LENGTH, compute_checksum, generate_random_text

ACCESS_PREFIX, REFRESH_PREFIX = "mcp_at_", "mcp_rt_"
SECRET_LENGTH = 43

_TOKEN_PATTERN = re.compile(rf"mcp_[ar]t_[0-9A-Za-z]{{{SECRET_LENGTH + CHECKSUM_LENGTH}}}")


def access_token(request: Any, **_: Any) -> str:
    """Generate an access token. The request passed by oauthlib is ignored."""
    return _generate_token(ACCESS_PREFIX)


def refresh_token(request: Any, **_: Any) -> str:
    """Generate a refresh token."""
    return _generate_token(REFRESH_PREFIX)


def is_access_token(token: str) -> bool:
    """Return True for the form of an access token with a correct checksum.

    The database is not queried.
    """
    return token.startswith(ACCESS_PREFIX) and _is_well_formed(token)


def digest(token: str) -> str:
    """Return the stored form of a token or code: 64 hexadecimal characters."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _generate_token(prefix: str) -> str:
    body = prefix + generate_random_text(SECRET_LENGTH)
    return body + compute_checksum(body)


def _is_well_formed(token: str) -> bool:
    return (
        _TOKEN_PATTERN.fullmatch(token) is not None
        and compute_checksum(token[:-CHECKSUM_LENGTH]) == token[-CHECKSUM_LENGTH:]
    )
