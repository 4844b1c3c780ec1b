"""Sealed tokens and signed names that clients carry between workers.

Tokens are encrypted with AES-256-GCM, so a client can neither read nor change them. Each token is bound to its context
(principal, endpoint, call). The binding is the associated data of the cipher. It is not stored in the token but
computed from the request that returns the token. A token of another call or user therefore does not open. The first
secret seals, and every secret opens: SECRET_KEY can be rotated.

Each token has its own key, derived from the secret and a random salt. Random nonces limit the number of tokens under a
single AES-GCM key (NIST SP 800-38D, section 8.3). This limit does not apply to the tokens under one SECRET_KEY.

Do not seal data that the client must not infer: the length of a token reveals how well its content compresses.

`NameSigner` signs names instead: a client can read and return a signed name, but cannot create one.
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
"""Length of a name's authentication code in bytes: 128 bits cannot be guessed."""
MARKED = 512
"""Maximum length of a signed name in characters; longer input is rejected unread."""
SHORT = 256
"""Maximum length of JSON that is sealed without compression, in bytes."""
INFLATES = 8
"""Maximum ratio of payload to token length; repetitive JSON compresses well."""

_HEAD = struct.Struct(">Bd")
"""Header of the plaintext: compression flag, expiry in seconds since the epoch."""


class Seal:
    """Authenticated encryption of tokens for one purpose.

    Tokens of another purpose do not open. `secrets` are SECRET_KEY and its fallbacks. `max_token_bytes` is the maximum
    length of a token.
    """

    def __init__(self, secrets: Sequence[str | bytes], *, purpose: str, limit: int = 64 * 1024) -> None:
        if not secrets or not all(secrets):
            raise ValueError("Sealing requires secrets; check that SECRET_KEY is not empty")
        self.purpose, self.limit = purpose, limit
        label = b"mcp_django seal 1 " + purpose.encode()
        keys = [HKDF(SHA256(), 32, None, label).derive(_bytes(secret)) for secret in secrets]
        # The key id selects the key that opens a token and reveals nothing about the key. Reversed: of equal ids the
        # first secret wins.
        self._keys = {hashlib.sha256(b"id" + key).digest()[:ID]: key for key in reversed(keys)}
        self._id = hashlib.sha256(b"id" + keys[0]).digest()[:ID]

    def seal(self, payload: dict[str, Any], binding: bytes, *, ttl: float) -> str:
        """Return a token that opens only with the same `binding`, for `ttl` seconds.

        Raises:
            StateTooLarge: the payload or the token exceeds the limit.
        """
        data = jsonrpc.dumps(payload)
        if len(data) > INFLATES * self.limit:
            raise StateTooLarge(
                f"The {self.purpose} payload of {len(data)} bytes exceeds the limit of {INFLATES * self.limit}"
            )

        packed = len(data) > SHORT
        plain = _HEAD.pack(packed, time.time() + ttl) + (zlib.compress(data, 1) if packed else data)
        salt, nonce = os.urandom(SALT), os.urandom(NONCE)
        head = VERSION + self._id
        sealed = _cipher(self._keys[self._id], salt).encrypt(nonce, plain, head + binding)
        token = base64.urlsafe_b64encode(b"".join((head, salt, nonce, sealed))).rstrip(b"=").decode("ascii")

        if len(token) > self.limit:
            raise StateTooLarge(f"The {self.purpose} of {len(token)} bytes exceeds the limit of {self.limit}")
        return token

    def open(self, token: Any, binding: bytes) -> dict[str, Any]:
        """Return the payload of a token.

        Raises:
            InvalidParams: the token is invalid; the text is the same for each reason, so that a client cannot infer it.
        """
        try:
            return self._open(token, binding)
        except (ValueError, KeyError, InvalidTag, zlib.error):
            raise self.refused() from None

    def refused(self) -> InvalidParams:
        """Return the exception that `unseal` raises."""
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
            # Decrypted, so created by this project. The output is limited because an older worker may have had a higher
            # limit.
            data = zlib.decompressobj().decompress(data, INFLATES * self.limit)
        payload: dict[str, Any] = jsonrpc.loads(data)
        return payload


class Stamp:
    """Signer of names that are sent to clients.

    Any worker can verify a signed name without shared storage. `secrets` are SECRET_KEY and its fallbacks: the first
    one signs, all of them verify. A signature is valid for one purpose and one `binding`, such as a session.
    """

    def __init__(self, secrets: Sequence[str | bytes], *, purpose: str) -> None:
        if not secrets or not all(secrets):
            raise ValueError("Signing requires secrets; check that SECRET_KEY is not empty")
        label = b"mcp_django stamp 1 " + purpose.encode()
        self._keys = [HKDF(SHA256(), 32, None, label).derive(_bytes(secret)) for secret in secrets]

    def mark(self, name: str, binding: str) -> str:
        """Return `<name>.<mac>`, which is ASCII if the name is."""
        return f"{name}.{_mark(self._keys[0], name, binding)}"

    def read(self, marked: Any, binding: str) -> str | None:
        """Return the name of a signed name, or None if the signature is invalid."""
        if type(marked) is not str or not marked.isascii() or len(marked) > MARKED:
            return None
        name, dot, given = marked.rpartition(".")
        if not dot or not any(hmac.compare_digest(given, _mark(key, name, binding)) for key in self._keys):
            return None
        return name


def _mark(key: bytes, name: str, binding: str) -> str:
    # The length prevents moving characters between the name and the binding.
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
    # The last base64 character has unused bits, and surplus padding is accepted: allow only the canonical encoding.
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != encoded:
        raise ValueError
    return raw


def _cut(raw: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    a = len(VERSION) + ID
    b, c = a + SALT, a + SALT + NONCE
    if raw[: len(VERSION)] != VERSION:
        raise ValueError
    return raw[:a], raw[a:b], raw[b:c], raw[c:]
