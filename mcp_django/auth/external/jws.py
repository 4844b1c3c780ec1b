"""Signatures of JSON Web Tokens and their public keys.

The only module that uses jwcrypto. Only asymmetric algorithms are supported. With a shared secret every verifier could
sign tokens, and a public key must never be used as a shared secret (RFC 8725, sections 2.1 and 3.1).
"""

from collections.abc import Mapping
from typing import Any, Final

from mcp_django.auth.external.jwt import MAX_KID_CHARS

KEY_TYPES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", ())),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
"""Key type (`kty`) and allowed curves by algorithm."""
MIN_RSA_BITS: Final = 2048
"""Minimum size of an RSA key (RFC 7518, section 3.3)."""
MAX_RSA_BITS: Final = 8192
"""Maximum size of an RSA key. Larger keys cost time without benefit."""
_PUBLIC_MEMBERS: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""Public members of a key, by type. Some issuers publish the private members too."""


class PublicKey:
    """A public key of an issuer. `kid`, `alg` and the other members are as published."""

    __slots__ = ("_algorithm", "_curve", "_key", "_type", "kid")

    def __init__(self, jwk: Mapping[str, Any], key: Any) -> None:
        self.kid: str | None = jwk.get("kid")
        self._algorithm = jwk.get("alg")
        self._type = jwk["kty"]
        self._curve = jwk.get("crv")
        self._key = key

    def supports(self, algorithm: str) -> bool:
        """Return True if the key can be used with this algorithm."""
        kind, curves = KEY_TYPES[algorithm]
        is_right_type = self._type == kind and (not curves or self._curve in curves)
        return is_right_type and self._algorithm in (None, algorithm)

    def is_signature_valid(self, token: str, algorithm: str) -> bool:
        """Return True if the private half of this key signed the token (compact form)."""
        from jwcrypto.common import JWException
        from jwcrypto.jws import JWS

        signed = JWS()
        signed.allowed_algs = [algorithm]
        try:
            signed.deserialize(token)
            signed.verify(self._key, alg=algorithm)
        except (JWException, ValueError):
            return False
        return bool(signed.is_valid)


def load_key(jwk: Any) -> PublicKey | None:
    """Load a key of a JWK set.

    Return None for other entries than public signature keys. Unknown entries are ignored (RFC 7517, section 5).
    """
    from jwcrypto.common import JWException
    from jwcrypto.jwk import JWK

    if not isinstance(jwk, dict) or jwk.get("use") not in (None, "sig"):
        return None
    operations, kid = jwk.get("key_ops"), jwk.get("kid")
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return None
    if kid is not None and (not isinstance(kid, str) or len(kid) > MAX_KID_CHARS):
        return None

    kind = jwk.get("kty")
    names = _PUBLIC_MEMBERS.get(kind) if isinstance(kind, str) else None
    if names is None or not all(isinstance(jwk.get(name), str) for name in names):
        return None

    try:
        key = JWK(kty=kind, **{name: jwk[name] for name in names})
        public = key.get_op_key("verify")
    except (JWException, ValueError, TypeError, ArithmeticError):
        return None
    if kind == "RSA" and not MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS:
        return None
    return PublicKey(jwk, key)
