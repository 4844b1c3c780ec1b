"""Sealing: authenticated encryption with AES-256-GCM, under keys derived from secrets.

A sealed text is bound to its context by the associated data of the cipher. The binding is not stored in the text but
computed again by the reader. A text that is moved to another context therefore does not open. The first secret seals,
and every secret opens: SECRET_KEY can be rotated.

Each text has its own key, derived from the secret and a random salt. Random nonces limit the number of texts under a
single AES-GCM key (NIST SP 800-38D, section 8.3). This limit does not apply to the texts under one secret.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

VERSION = b"\x01"
HEAD_BYTES, SALT_BYTES, NONCE_BYTES = 5, 16, 12
"""Lengths of the first parts of a sealed text in bytes.

The head is the version and four bytes of the key's id.
"""


class UnsealError(Exception):
    """The text was sealed with another secret or binding, or is damaged."""


class UnsealedData(NamedTuple):
    """Decrypted data of a sealed text."""

    data: bytes
    is_stale: bool
    """True if a secret other than the first opened the text; it should be sealed again."""


class SealingCipher:
    """Authenticated encryption under several secrets, for the purpose that `label` names."""

    def __init__(self, secrets: Sequence[str | bytes], label: str) -> None:
        keys = [derive_key(secret, label) for secret in secrets]
        # The key id selects the key that opens a text and reveals nothing about the key.
        self._keys = [((VERSION + hashlib.sha256(b"id" + key).digest())[:HEAD_BYTES], key) for key in keys]

    def seal(self, data: bytes, binding: bytes) -> str:
        """Return `data` as a text that opens only with the same `binding`."""
        head, key = self._keys[0]
        salt, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
        return encode_base64url(head + salt + nonce + _create_aead(key, salt).encrypt(nonce, data, head + binding))

    def unseal(self, text: str, binding: bytes) -> UnsealedData:
        """Return the data of a text of `seal`. Raises UnsealError."""
        try:
            raw = decode_base64url(text)
        except ValueError:
            raise UnsealError from None
        head, salt_end = raw[:HEAD_BYTES], HEAD_BYTES + SALT_BYTES
        salt, nonce = raw[HEAD_BYTES:salt_end], raw[salt_end : salt_end + NONCE_BYTES]
        sealed = raw[salt_end + NONCE_BYTES :]

        for number, (key_head, key) in enumerate(self._keys):
            if head != key_head:
                continue
            try:
                return UnsealedData(_create_aead(key, salt).decrypt(nonce, sealed, head + binding), number > 0)
            except (InvalidTag, ValueError):
                continue  # key ids are short and may collide
        raise UnsealError


def derive_key(secret: str | bytes, label: str) -> bytes:
    """Return the key of a secret for the purpose that `label` names: 32 bytes."""
    return HKDF(SHA256(), 32, None, label.encode()).derive(secret if isinstance(secret, bytes) else secret.encode())


def encode_base64url(raw: bytes) -> str:
    """Encode bytes in base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def decode_base64url(text: str) -> bytes:
    """Decode base64url without padding, in its canonical form only.

    Otherwise one value could have several spellings: the last character has unused bits, and decoders accept surplus
    padding. Raises ValueError.
    """
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if encode_base64url(raw) != text:
        raise ValueError("base64url that is not canonical")
    return raw


def _create_aead(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, salt, "sha256"))
