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

TOKEN_VERSION = b"\x01"
KEY_ID_BYTES, SALT_BYTES, NONCE_BYTES = 4, 16, 12
MAC_BYTES = 16
"""Length of a name's authentication code in bytes: 128 bits cannot be guessed."""
MAX_SIGNED_NAME_CHARACTERS = 512
"""Maximum length of a signed name in characters; longer input is rejected unread."""
MAX_UNCOMPRESSED_BYTES = 256
"""Maximum length of JSON that is sealed without compression, in bytes."""
MAX_INFLATION_FACTOR = 8
"""Maximum ratio of payload to token length; repetitive JSON compresses well."""

_PAYLOAD_HEADER = struct.Struct(">Bd")
"""Header of the plaintext: compression flag, expiry in seconds since the epoch."""


class TokenSealer:
    """Authenticated encryption of tokens for one purpose.

    Tokens of another purpose do not open. `secrets` are SECRET_KEY and its fallbacks. `max_token_bytes` is the maximum
    length of a token.
    """

    def __init__(self, secrets: Sequence[str | bytes], *, purpose: str, max_token_bytes: int = 64 * 1024) -> None:
        if not secrets or not all(secrets):
            raise ValueError("Sealing requires secrets; check that SECRET_KEY is not empty")
        self.purpose = purpose
        self.max_token_bytes = max_token_bytes
        label = b"mcp_django seal 1 " + purpose.encode()
        keys = [HKDF(SHA256(), 32, None, label).derive(_encode_secret(secret)) for secret in secrets]
        # The key id selects the key that opens a token and reveals nothing about the key. Reversed: of equal ids the
        # first secret wins.
        self._keys = {hashlib.sha256(b"id" + key).digest()[:KEY_ID_BYTES]: key for key in reversed(keys)}
        self._key_id = hashlib.sha256(b"id" + keys[0]).digest()[:KEY_ID_BYTES]

    def seal(self, payload: dict[str, Any], binding: bytes, *, ttl: float) -> str:
        """Return a token that opens only with the same `binding`, for `ttl` seconds.

        Raises:
            StateTooLarge: the payload or the token exceeds the limit.
        """
        encoded = jsonrpc.dumps(payload)
        if len(encoded) > MAX_INFLATION_FACTOR * self.max_token_bytes:
            raise StateTooLarge(
                f"The {self.purpose} payload of {len(encoded)} bytes exceeds the limit of "
                f"{MAX_INFLATION_FACTOR * self.max_token_bytes}"
            )

        is_compressed = len(encoded) > MAX_UNCOMPRESSED_BYTES
        plaintext = _PAYLOAD_HEADER.pack(is_compressed, time.time() + ttl) + (
            zlib.compress(encoded, 1) if is_compressed else encoded
        )
        salt, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
        head = TOKEN_VERSION + self._key_id
        sealed = _create_cipher(self._keys[self._key_id], salt).encrypt(nonce, plaintext, head + binding)
        token = base64.urlsafe_b64encode(b"".join((head, salt, nonce, sealed))).rstrip(b"=").decode("ascii")

        if len(token) > self.max_token_bytes:
            raise StateTooLarge(f"The {self.purpose} of {len(token)} bytes exceeds the limit of {self.max_token_bytes}")
        return token

    def unseal(self, token: Any, binding: bytes) -> dict[str, Any]:
        """Return the payload of a token.

        Raises:
            InvalidParams: the token is invalid; the text is the same for each reason, so that a client cannot infer it.
        """
        try:
            return self._unseal(token, binding)
        except (ValueError, KeyError, InvalidTag, zlib.error):
            raise self.build_error() from None

    def build_error(self) -> InvalidParams:
        """Return the exception that `unseal` raises."""
        return InvalidParams(f"Invalid or expired {self.purpose}")

    def _unseal(self, token: Any, binding: bytes) -> dict[str, Any]:
        if type(token) is not str or len(token) > self.max_token_bytes:
            raise ValueError

        raw = _decode_token(token)
        head, salt, nonce, sealed = _split_token(raw)
        plain = _create_cipher(self._keys[head[1:]], salt).decrypt(nonce, sealed, head + binding)

        packed, expires = _PAYLOAD_HEADER.unpack_from(plain)
        if expires < time.time():
            raise ValueError
        data = plain[_PAYLOAD_HEADER.size :]
        if packed:
            # Decrypted, so created by this project. The output is limited because an older worker may have had a higher
            # limit.
            data = zlib.decompressobj().decompress(data, MAX_INFLATION_FACTOR * self.max_token_bytes)
        payload: dict[str, Any] = jsonrpc.loads(data)
        return payload


class NameSigner:
    """Signer of names that are sent to clients.

    Any worker can verify a signed name without shared storage. `secrets` are SECRET_KEY and its fallbacks: the first
    one signs, all of them verify. A signature is valid for one purpose and one `binding`, such as a session.
    """

    def __init__(self, secrets: Sequence[str | bytes], *, purpose: str) -> None:
        if not secrets or not all(secrets):
            raise ValueError("Signing requires secrets; check that SECRET_KEY is not empty")
        label = b"mcp_django stamp 1 " + purpose.encode()
        self._keys = [HKDF(SHA256(), 32, None, label).derive(_encode_secret(secret)) for secret in secrets]

    def sign(self, name: str, binding: str) -> str:
        """Return `<name>.<mac>`, which is ASCII if the name is."""
        return f"{name}.{_compute_mac(self._keys[0], name, binding)}"

    def unsign(self, signed_name: Any, binding: str) -> str | None:
        """Return the name of a signed name, or None if the signature is invalid."""
        if type(signed_name) is not str or not signed_name.isascii() or len(signed_name) > MAX_SIGNED_NAME_CHARACTERS:
            return None
        name, dot, mac = signed_name.rpartition(".")
        if not dot or not any(hmac.compare_digest(mac, _compute_mac(key, name, binding)) for key in self._keys):
            return None
        return name


def _compute_mac(key: bytes, name: str, binding: str) -> str:
    # The length prevents moving characters between the name and the binding.
    message = f"{len(name)}.{name}{binding}".encode()
    return base64.urlsafe_b64encode(hmac.digest(key, message, "sha256")[:MAC_BYTES]).rstrip(b"=").decode("ascii")


def _encode_secret(secret: str | bytes) -> bytes:
    return secret if isinstance(secret, bytes) else secret.encode()


def _create_cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, salt, "sha256"))


def _decode_token(token: str) -> bytes:
    try:
        encoded = token.encode("ascii")
        raw = base64.b64decode(encoded + b"=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ValueError from None
    # The last base64 character has unused bits, and surplus padding is accepted: allow only the canonical encoding.
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != encoded:
        raise ValueError
    return raw


def _split_token(raw: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    a = len(TOKEN_VERSION) + KEY_ID_BYTES
    b, c = a + SALT_BYTES, a + SALT_BYTES + NONCE_BYTES
    if raw[: len(TOKEN_VERSION)] != TOKEN_VERSION:
        raise ValueError
    return raw[:a], raw[a:b], raw[b:c], raw[c:]
