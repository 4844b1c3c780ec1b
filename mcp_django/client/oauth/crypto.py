"""Sealing of other servers' secrets, keyed by SECRET_KEY.

The binding of a sealed text is its owner and server. It is recomputed from the row, so a text copied into another row
cannot be opened. Texts opened by a fallback of SECRET_KEY should be sealed again.
"""

import hashlib
from collections.abc import Sequence

from mcp_django import conf
from mcp_django.crypto import SealingCipher, UnsealedData, UnsealError

MAX_SEALED_LENGTH = 256 * 1024
"""Maximum length of a sealed text, in characters."""


def seal(data: bytes, binding: Sequence[str], *, purpose: str) -> str:
    """Encrypt `data`.

    Only `unseal` with the same `binding` and `purpose` can decrypt it.
    """
    text = _create_cipher(purpose).seal(data, _encode_parts(binding))
    return text + "=" * (-len(text) % 4)  # stored texts are padded


def unseal(text: str, binding: Sequence[str], *, purpose: str) -> UnsealedData:
    """Decrypt a text of `seal`. Raises UnsealError."""
    if len(text) > MAX_SEALED_LENGTH:
        raise UnsealError
    return _create_cipher(purpose).unseal(text.rstrip("="), _encode_parts(binding))


def hash_parts(*parts: str) -> str:
    """Return a collision-resistant hash of several strings, as 64 hexadecimal digits."""
    return hashlib.sha256(_encode_parts(parts)).hexdigest()


def _create_cipher(purpose: str) -> SealingCipher:
    secrets = conf.secret_keys()
    if not all(secrets[:1]):
        raise UnsealError("SECRET_KEY is empty")
    return SealingCipher([secret for secret in secrets if secret], f"mcp_django client 1 {purpose}")


def _encode_parts(parts: Sequence[str]) -> bytes:
    # Length prefixes keep the boundaries of the parts unambiguous.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)
