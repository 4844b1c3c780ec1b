"""Sealed tokens and signed names that clients carry between workers.

Tokens are encrypted, so a client can neither read nor change them. Each token is bound to its context (principal,
endpoint, call), which is computed from the request that returns the token. A token of another call or user therefore
does not open.

Do not seal data that the client must not infer: the length of a token reveals how well its content compresses.

`NameSigner` signs names instead: a client can read and return a signed name, but cannot create one.
"""

import hmac
import struct
import time
import zlib
from collections.abc import Sequence
from typing import Any

from mcp_django.crypto import SealingCipher, UnsealError, derive_key, encode_base64url
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.ports import StateTooLarge

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
        self._cipher = SealingCipher(secrets, f"mcp_django seal 1 {purpose}")

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
        token = self._cipher.seal(plaintext, binding)

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
        except (ValueError, UnsealError, zlib.error):
            raise self.build_error() from None

    def build_error(self) -> InvalidParams:
        """Return the exception that `unseal` raises."""
        return InvalidParams(f"Invalid or expired {self.purpose}")

    def _unseal(self, token: Any, binding: bytes) -> dict[str, Any]:
        if type(token) is not str or len(token) > self.max_token_bytes:
            raise ValueError

        plain, _ = self._cipher.unseal(token, binding)
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
        self._keys = [derive_key(secret, f"mcp_django stamp 1 {purpose}") for secret in secrets]

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
    return encode_base64url(hmac.digest(key, message, "sha256")[:MAC_BYTES])
