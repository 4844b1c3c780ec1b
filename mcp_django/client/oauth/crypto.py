"""Encryption of other servers' secrets: AES-256-GCM, keyed by SECRET_KEY.

The associated data binds a sealed text to its owner and server. It is not part of the text, but recomputed from the
row, so a text copied into another row cannot be opened. The first secret encrypts, and all of them decrypt, which
supports rotation of SECRET_KEY. Texts opened by a fallback should be sealed again.

Each text has its own key, derived from the secret and a random salt. The number of texts is therefore not limited by
random nonces under a single key (NIST SP 800-38D, section 8.3).
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mcp_django import conf

VERSION = b"\x01"
KEY_ID_BYTES, SALT_BYTES, NONCE_BYTES = 4, 16, 12
MAX_SEALED_LENGTH = 256 * 1024
"""Maximum length of a sealed text, in characters."""


class UnsealError(Exception):
    """The text was sealed with another SECRET_KEY or binding, or is damaged."""


class UnsealedData(NamedTuple):
    """Decrypted data of a sealed text."""

    data: bytes
    is_stale: bool
    """True if a fallback of SECRET_KEY opened the text; it should be sealed again."""


def seal(data: bytes, binding: Sequence[str], *, purpose: str) -> str:
    """Encrypt `data`.

    Only `unseal` with the same `binding` and `purpose` can decrypt it.
    """
    key_id, key = _derive_keys(purpose)[0]
    salt, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
    head = VERSION + key_id
    sealed = _create_cipher(key, salt).encrypt(nonce, data, head + _encode_parts(binding))
    return base64.urlsafe_b64encode(b"".join((head, salt, nonce, sealed))).decode("ascii")


def unseal(text: str, binding: Sequence[str], *, purpose: str) -> UnsealedData:
    """Decrypt a text of `seal`. Raises UnsealError."""
    if len(text) > MAX_SEALED_LENGTH:
        raise UnsealError
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise UnsealError from None

    start = len(VERSION) + KEY_ID_BYTES
    head, salt, nonce = (
        raw[:start],
        raw[start : start + SALT_BYTES],
        raw[start + SALT_BYTES : start + SALT_BYTES + NONCE_BYTES],
    )
    for number, (key_id, key) in enumerate(_derive_keys(purpose)):
        if head != VERSION + key_id:
            continue
        try:
            data = _create_cipher(key, salt).decrypt(
                nonce, raw[start + SALT_BYTES + NONCE_BYTES :], head + _encode_parts(binding)
            )
        except (InvalidTag, ValueError):
            continue  # key ids are short and may collide
        return UnsealedData(data, is_stale=number > 0)
    raise UnsealError


def hash_parts(*parts: str) -> str:
    """Return a collision-resistant hash of several strings, as 64 hexadecimal digits."""
    return hashlib.sha256(_encode_parts(parts)).hexdigest()


def _derive_keys(purpose: str) -> list[tuple[bytes, bytes]]:
    """Return id and key for each secret, the encrypting one first.

    An id reveals nothing about its key.
    """
    secrets = conf.secret_keys()
    if not all(secrets[:1]):
        raise UnsealError("SECRET_KEY is empty")
    label = b"mcp_django client 1 " + purpose.encode()
    keys = [HKDF(SHA256(), 32, None, label).derive(secret.encode()) for secret in secrets if secret]
    return [(hashlib.sha256(b"id" + key).digest()[:KEY_ID_BYTES], key) for key in keys]


def _create_cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, salt, "sha256"))


def _encode_parts(parts: Sequence[str]) -> bytes:
    # Length prefixes keep the boundaries of the parts unambiguous.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)
