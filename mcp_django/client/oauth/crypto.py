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
ID, SALT, NONCE = 4, 16, 12
LONGEST = 256 * 1024
"""Maximum length of a sealed text, in characters."""


class Unreadable(Exception):
    """The text was sealed with another SECRET_KEY or binding, or is damaged."""


class Opened(NamedTuple):
    """Decrypted data of a sealed text."""

    data: bytes
    stale: bool
    """True if a fallback of SECRET_KEY opened the text; it should be sealed again."""


def seal(data: bytes, binding: Sequence[str], *, purpose: str) -> str:
    """Encrypt `data`.

    Only `unseal` with the same `binding` and `purpose` can decrypt it.
    """
    name, key = _keys(purpose)[0]
    salt, nonce = os.urandom(SALT), os.urandom(NONCE)
    head = VERSION + name
    sealed = _cipher(key, salt).encrypt(nonce, data, head + _bound(binding))
    return base64.urlsafe_b64encode(b"".join((head, salt, nonce, sealed))).decode("ascii")


def open_sealed(text: str, binding: Sequence[str], *, purpose: str) -> Opened:
    """Decrypt a text of `seal`. Raises UnsealError."""
    if len(text) > LONGEST:
        raise Unreadable
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise Unreadable from None

    start = len(VERSION) + ID
    head, salt, nonce = raw[:start], raw[start : start + SALT], raw[start + SALT : start + SALT + NONCE]
    for number, (name, key) in enumerate(_keys(purpose)):
        if head != VERSION + name:
            continue
        try:
            data = _cipher(key, salt).decrypt(nonce, raw[start + SALT + NONCE :], head + _bound(binding))
        except (InvalidTag, ValueError):
            continue  # key ids are short and may collide
        return Opened(data, stale=number > 0)
    raise Unreadable


def digest(*parts: str) -> str:
    """Return a collision-resistant hash of several strings, as 64 hexadecimal digits."""
    return hashlib.sha256(_bound(parts)).hexdigest()


def _keys(purpose: str) -> list[tuple[bytes, bytes]]:
    """Return id and key for each secret, the encrypting one first.

    An id reveals nothing about its key.
    """
    secrets = conf.secret_keys()
    if not all(secrets[:1]):
        raise Unreadable("SECRET_KEY is empty")
    label = b"mcp_django client 1 " + purpose.encode()
    keys = [HKDF(SHA256(), 32, None, label).derive(secret.encode()) for secret in secrets if secret]
    return [(hashlib.sha256(b"id" + key).digest()[:ID], key) for key in keys]


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, salt, "sha256"))


def _bound(parts: Sequence[str]) -> bytes:
    # Length prefixes keep the boundaries of the parts unambiguous.
    said = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in said)
