"""What is kept of other servers' secrets, sealed: AES-256-GCM under keys derived from SECRET_KEY.

What a seal is bound to (whose it is, and where it may go) is the associated data: it is not in the sealed text but
worked out again from the row that holds it, so that a text copied into another row does not open there. The first
secret seals and all of them open, which is how SECRET_KEY is rotated; what a fallback opened is to be sealed anew.

Each text has a key of its own, derived from the secret and a random salt, so that their number is not bounded by what
random nonces allow a single key (NIST SP 800-38D, section 8.3).
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
"""Characters of a sealed text."""


class Unreadable(Exception):
    """The text was sealed under another SECRET_KEY or for another place, or is damaged."""


class Opened(NamedTuple):
    """What was sealed."""

    data: bytes
    stale: bool
    """Is it sealed under a fallback of SECRET_KEY, and to be sealed anew?"""


def seal(data: bytes, binding: Sequence[str], *, purpose: str) -> str:
    """`data` as a text that only `open_sealed` with the same `binding` and `purpose` reads back."""
    name, key = _keys(purpose)[0]
    salt, nonce = os.urandom(SALT), os.urandom(NONCE)
    head = VERSION + name
    sealed = _cipher(key, salt).encrypt(nonce, data, head + _bound(binding))
    return base64.urlsafe_b64encode(b"".join((head, salt, nonce, sealed))).decode("ascii")


def open_sealed(text: str, binding: Sequence[str], *, purpose: str) -> Opened:
    """What `seal` made a text of. Raises Unreadable."""
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
            continue  # the id of a key is short: another one may have it, too
        return Opened(data, stale=number > 0)
    raise Unreadable


def digest(*parts: str) -> str:
    """A name for several strings together, in 64 hexadecimal digits; other strings have another."""
    return hashlib.sha256(_bound(parts)).hexdigest()


def _keys(purpose: str) -> list[tuple[bytes, bytes]]:
    """Id and key for each secret, the one that seals first. The id says nothing about the key."""
    secrets = conf.secret_keys()
    if not all(secrets[:1]):
        raise Unreadable("SECRET_KEY is empty")
    label = b"mcp_django client 1 " + purpose.encode()
    keys = [HKDF(SHA256(), 32, None, label).derive(secret.encode()) for secret in secrets if secret]
    return [(hashlib.sha256(b"id" + key).digest()[:ID], key) for key in keys]


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, salt, "sha256"))


def _bound(parts: Sequence[str]) -> bytes:
    # The lengths keep a part of one from passing as a part of the next.
    said = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in said)
