"""Public keys of an issuer: fetched on demand, and cached during outages.

The set is fetched again when it is old, or when a token names an unknown key. It is fetched at most once a minute, so
that a flood of unknown identifiers does not load the issuer. Concurrent callers wait for the same fetch, in any event
loop.

Only asymmetric algorithms are supported. With a shared secret every verifier could sign tokens, and a public key must
never be used as a shared secret (RFC 8725, sections 2.1 and 3.1).
"""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from mcp_django.aio.clock import monotonic
from mcp_django.aio.tasks import BackgroundTasks
from mcp_django.auth.external.http import REQUEST_TIMEOUT_SECONDS, ProviderUnreachable, fetch_json
from mcp_django.auth.external.jwt import MAX_KID_CHARS
from mcp_django.conf.issuers import IssuerSettings, is_loopback_url, is_provider_url
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.auth")

MAX_AGE_SECONDS: Final = 10 * 60.0
"""Seconds after which the set is fetched again.

A key that the issuer removes stays valid for so long.
"""
MAX_STALE_SECONDS: Final = 24 * 3600.0
"""Seconds for which cached keys stay valid while the issuer is unreachable."""
MIN_FETCH_INTERVAL_SECONDS: Final = 60.0
"""Minimum interval between two fetches in seconds."""
MAX_RESPONSE_BYTES: Final = 512 * 1024
MAX_KEYS: Final = 100
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


class KeysUnavailable(Exception):
    """Failure to determine the issuer's keys at the moment."""


@dataclass(frozen=True, slots=True)
class _FetchedKeys:
    keys: tuple[PublicKey, ...]
    fetched_at: float


class KeySet:
    """The keys of one issuer. Thread-safe."""

    def __init__(self, issuer: IssuerSettings) -> None:
        self._issuer = issuer
        self._fetched: _FetchedKeys | None = None
        self._tried_at = float("-inf")
        self._failed = False
        self._pending_fetch: Future[None] | None = None
        self._lock = threading.Lock()
        self._tasks = BackgroundTasks()

    async def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """Return the only key with this identifier that fits the algorithm, or None.

        Without an identifier the only key that fits the algorithm is returned.

        Raises:
            KeysUnavailable: the keys are unknown, or the issuer is down and the key may be new.
        """
        fetched = self._fetched
        if fetched is None or monotonic() - fetched.fetched_at >= MAX_AGE_SECONDS:
            await self._refetch()
        key = self._find_cached(kid, algorithm)
        if key is None and await self._refetch():
            key = self._find_cached(kid, algorithm)

        if key is None and (self._failed or self._fetched is None):
            # It may be a new key of an issuer that is down.
            raise KeysUnavailable
        return key

    def _find_cached(self, kid: str | None, algorithm: str) -> PublicKey | None:
        fetched = self._fetched
        if fetched is None or monotonic() - fetched.fetched_at >= MAX_STALE_SECONDS:
            return None
        fitting = [key for key in fetched.keys if (kid is None or key.kid == kid) and key.supports(algorithm)]
        return fitting[0] if len(fitting) == 1 else None

    async def _refetch(self) -> bool:
        """Fetch the set, or wait for a running fetch.

        Return False if the last fetch is less than a minute old.
        """
        with self._lock:
            pending = self._pending_fetch
            if pending is None:
                if monotonic() - self._tried_at < MIN_FETCH_INTERVAL_SECONDS:
                    return False
                self._tried_at = monotonic()
                pending = self._pending_fetch = Future()
                # A caller that stops waiting must not cancel the fetch for other callers.
                pending.set_running_or_notify_cancel()
                self._tasks.spawn_in(None, self._fetch(pending))

        try:
            # The loop that fetches may end early: that of one request under WSGI.
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS + 1):
                await asyncio.wrap_future(pending)
        except TimeoutError:
            self._finish_fetch(pending, failed=True)
        return True

    async def _fetch(self, pending: "Future[None]") -> None:
        failed = True
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                keys = await fetch_keys(self._issuer)
            self._fetched = _FetchedKeys(keys, monotonic())
            failed = False
        except (ProviderUnreachable, TimeoutError) as problem:
            why = str(problem) or f"the fetch took more than {REQUEST_TIMEOUT_SECONDS:g} seconds"
            logger.warning("Keys of %s cannot be fetched: %s", self._issuer.issuer, why)
        except asyncio.CancelledError:
            self._tried_at = float("-inf")  # the loop ended; the issuer may be reachable
            raise
        finally:
            self._finish_fetch(pending, failed=failed)

    def _finish_fetch(self, pending: "Future[None]", *, failed: bool) -> None:
        with self._lock:
            if self._pending_fetch is not pending:
                return
            self._failed = failed
            self._pending_fetch = None
        pending.set_result(None)


async def fetch_keys(issuer: IssuerSettings) -> tuple[PublicKey, ...]:
    """Fetch the issuer's signature keys.

    Raises:
        ProviderUnreachable: no usable key set.
    """
    url = issuer.jwks_uri or await _discover_jwks_uri(issuer)
    key_set = await fetch_json(url, max_bytes=MAX_RESPONSE_BYTES, ca_file=issuer.ca_file)
    listed = key_set.get("keys")
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ProviderUnreachable(f"its response is not a set of at most {MAX_KEYS} keys")
    keys = tuple(key for key in map(load_key, listed) if key is not None)
    if not keys:
        raise ProviderUnreachable("its key set has no public signature key")
    return keys


async def _discover_jwks_uri(issuer: IssuerSettings) -> str:
    """Return the URL of the keys from the issuer's discovery document.

    Raises ProviderUnreachable.
    """
    problem = ProviderUnreachable("it has no discovery document")
    for url in [issuer.discovery] if issuer.discovery else build_discovery_urls(issuer.issuer):
        try:
            document = await fetch_json(url, max_bytes=MAX_RESPONSE_BYTES, ca_file=issuer.ca_file)
        except ProviderUnreachable as unreachable:
            problem = unreachable
            continue
        uri = document.get("jwks_uri")
        if document.get("issuer") != issuer.issuer:
            # RFC 8414, section 3.3: another name is another issuer.
            problem = ProviderUnreachable("its discovery document names another issuer")
        elif not isinstance(uri, str) or not is_provider_url(uri, plain=is_loopback_url(url)):
            problem = ProviderUnreachable("its discovery document names no usable jwks_uri")
        else:
            return uri
    raise problem


def build_discovery_urls(issuer: str) -> Sequence[str]:
    """Return the possible URLs of a discovery document.

    See RFC 8414, section 3.1, and OpenID Connect Discovery 1.0, section 4.
    """
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    )
    return tuple(dict.fromkeys(urls))
