"""Sealed payloads: what a client carries for us, so that any worker can go on where another one stopped.

AES-256-GCM: a client can neither read nor change a token. What a token is bound to (who, where, which call) is the
associated data: it is not in the token but worked out again from the request that brings it back, so a token of another
call or another user does not open. The first secret seals and all of them open, which is how SECRET_KEY is rotated.

Every token is sealed under a key of its own, derived from the secret and a random salt. So the number of tokens under
one SECRET_KEY is not bounded by what random nonces allow a single AES-GCM key (NIST SP 800-38D, section 8.3).

Not for what the client must not learn about itself: the length of a token tells how well its content compresses.

A `Stamp` is the small brother: a name that a client may read and give back, but cannot make.
"""

import base64
import binascii
import hashlib
import hmac
import os
import struct
import time
import zlib
from collections.abc import Sequence
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.ports import StateTooLarge

VERSION = b"\x01"
ID, SALT, NONCE = 4, 16, 12
MARK = 16
"""Bytes of a mark: 128 bits, which nobody guesses."""
MARKED = 512
"""Characters of a marked name that is worth a look."""
SHORT = 256
"""Bytes of JSON that are not worth compressing."""
INFLATES = 8
"""A payload may be so many times as long as the longest token; what repeats itself compresses well."""

_HEAD = struct.Struct(">Bd")
"""Before the payload: whether it is compressed, and when it expires (seconds since the epoch)."""


class Seal:
    """Seals and opens tokens of one purpose; those of another purpose do not open.

    `secrets` are SECRET_KEY and its fallbacks; `limit` is the most bytes a token may have.
    """

    def __init__(self, secrets: Sequence[str | bytes], *, purpose: str, limit: int = 64 * 1024) -> None:
        if not secrets or not all(secrets):
            raise ValueError("A seal needs secrets; is SECRET_KEY empty?")
        self.purpose, self.limit = purpose, limit
        label = b"mcp_django seal 1 " + purpose.encode()
        keys = [HKDF(SHA256(), 32, None, label).derive(_bytes(secret)) for secret in secrets]
        # The id finds the key that opens; it says nothing about the key. Reversed: of equal ids the first secret wins.
        self._keys = {hashlib.sha256(b"id" + key).digest()[:ID]: key for key in reversed(keys)}
        self._id = hashlib.sha256(b"id" + keys[0]).digest()[:ID]

    def seal(self, payload: dict[str, Any], binding: bytes, *, ttl: float) -> str:
        """A token that only `open` with the same `binding` reads back, for `ttl` seconds. Raises StateTooLarge."""
        data = jsonrpc.dumps(payload)
        if len(data) > INFLATES * self.limit:
            raise StateTooLarge(f"{len(data)} bytes are more than a {self.purpose} can hold")
        packed = len(data) > SHORT
        plain = _HEAD.pack(packed, time.time() + ttl) + (zlib.compress(data, 1) if packed else data)
        salt, nonce = os.urandom(SALT), os.urandom(NONCE)
        head = VERSION + self._id
        sealed = _cipher(self._keys[self._id], salt).encrypt(nonce, plain, head + binding)
        token = base64.urlsafe_b64encode(b"".join((head, salt, nonce, sealed))).rstrip(b"=").decode("ascii")
        if len(token) > self.limit:
            raise StateTooLarge(f"A {self.purpose} of {len(token)} bytes is over the limit of {self.limit}")
        return token

    def open(self, token: Any, binding: bytes) -> dict[str, Any]:
        """The payload. Raises InvalidParams, with one text for every reason: the client learns nothing from it."""
        try:
            return self._open(token, binding)
        except (ValueError, KeyError, InvalidTag, zlib.error):
            raise self.refused() from None

    def refused(self) -> InvalidParams:
        """What `open` raises."""
        return InvalidParams(f"Invalid or expired {self.purpose}")

    def _open(self, token: Any, binding: bytes) -> dict[str, Any]:
        if type(token) is not str or len(token) > self.limit:
            raise ValueError
        raw = _decode(token)
        head, salt, nonce, sealed = _cut(raw)
        plain = _cipher(self._keys[head[1:]], salt).decrypt(nonce, sealed, head + binding)
        packed, expires = _HEAD.unpack_from(plain)
        if expires < time.time():
            raise ValueError
        data = plain[_HEAD.size :]
        if packed:
            # Ours, since it opened; bounded all the same, because an older worker may have had a larger limit.
            data = zlib.decompressobj().decompress(data, INFLATES * self.limit)
        payload: dict[str, Any] = jsonrpc.loads(data)
        return payload


class Stamp:
    """Marks names that are sent to clients, so that any worker can tell one of ours from an invented one without
    having heard of it.

    `secrets` are SECRET_KEY and its fallbacks: the first marks, all are recognised. The mark holds for one purpose and
    one `binding` (a session, say).
    """

    def __init__(self, secrets: Sequence[str | bytes], *, purpose: str) -> None:
        if not secrets or not all(secrets):
            raise ValueError("A stamp needs secrets; is SECRET_KEY empty?")
        label = b"mcp_django stamp 1 " + purpose.encode()
        self._keys = [HKDF(SHA256(), 32, None, label).derive(_bytes(secret)) for secret in secrets]

    def mark(self, name: str, binding: str) -> str:
        """`<name>.<mark>`: ASCII when the name is."""
        return f"{name}.{_mark(self._keys[0], name, binding)}"

    def read(self, marked: Any, binding: str) -> str | None:
        """The name in what `mark` made with the same binding; None for anything else."""
        if type(marked) is not str or not marked.isascii() or len(marked) > MARKED:
            return None
        name, dot, given = marked.rpartition(".")
        if not dot or not any(hmac.compare_digest(given, _mark(key, name, binding)) for key in self._keys):
            return None
        return name


def _mark(key: bytes, name: str, binding: str) -> str:
    # The length keeps a part of one from passing as a part of the other.
    said = f"{len(name)}.{name}{binding}".encode()
    return base64.urlsafe_b64encode(hmac.digest(key, said, "sha256")[:MARK]).rstrip(b"=").decode("ascii")


def _bytes(secret: str | bytes) -> bytes:
    return secret if isinstance(secret, bytes) else secret.encode()


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, salt, "sha256"))


def _decode(token: str) -> bytes:
    try:
        encoded = token.encode("ascii")
        raw = base64.b64decode(encoded + b"=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ValueError from None
    # The last character has bits to spare, and padding may come twice: only our own spelling is the token.
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != encoded:
        raise ValueError
    return raw


def _cut(raw: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    a = len(VERSION) + ID
    b, c = a + SALT, a + SALT + NONCE
    if raw[: len(VERSION)] != VERSION:
        raise ValueError
    return raw[:a], raw[a:b], raw[b:c], raw[c:]
