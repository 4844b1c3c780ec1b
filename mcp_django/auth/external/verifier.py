"""Verifier for tokens of external identity providers: `MCP["ISSUERS"]`.

The shape of a token selects its issuer. A JWT is verified with the keys of the issuer that it names, if that one is
configured. An opaque token is sent to the one issuer whose prefix it has. No other issuer is tried: a provider never
receives tokens of another provider or of this project.

Introspection (RFC 7662) has a short-lived cache of active tokens. Without a response from the issuer the token is
neither accepted nor rejected: verification is unavailable.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from time import time
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote_plus

from django.db import Error as DatabaseFailure

from mcp_django.aio.clock import monotonic
from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, AuthError
from mcp_django.auth.external import claims as claims_of
from mcp_django.auth.external.accounts import find_user
from mcp_django.auth.external.claims import TokenClaims
from mcp_django.auth.external.http import ProviderUnreachable, fetch_json
from mcp_django.auth.external.jwks import MIN_FETCH_INTERVAL_SECONDS, KeySet, KeysUnavailable
from mcp_django.auth.external.jwt import ParsedToken, is_jwt_shaped, parse_jwt
from mcp_django.auth.external.strict_json import MalformedInput
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.conf.issuers import OWN_TOKEN_PREFIX, IssuerSettings
from mcp_django.models import ExternalIdentity
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.auth")

EXTERNAL_KIND: Final = "external"
"""`Principal.kind` of callers with such a token."""
ACCESS_TOKEN_TYPE: Final = "at+jwt"
LENIENT_TYPES: Final = (ACCESS_TOKEN_TYPE, "jwt", "")
"""Allowed values of `typ` where REQUIRE_TYPE is off."""
RETRY_AFTER_SECONDS: Final = 10.0
"""Seconds after which a client should retry while the issuer is unreachable."""
_UNAVAILABLE_MESSAGE: Final = "Tokens of this issuer cannot be verified at the moment; try again later"
_REQUIRED_CLAIMS = ("exp", "iat", "aud", "sub")
MAX_RESPONSE_BYTES: Final = 64 * 1024
MAX_CACHED_RESPONSES: Final = 4096
"""Maximum number of cached responses."""
MAX_OPEN_REQUESTS: Final = 100
"""Maximum number of concurrent requests.

Further ones fail, so that a flood of tokens does not flood the issuer.
"""


class ExternalVerifier:
    """Verifier for all configured issuers, with the cached state of each."""

    def __init__(self, issuers: Sequence[IssuerSettings]) -> None:
        self._issuers = {issuer.issuer: _IssuerState(issuer) for issuer in issuers}
        self._introspecting = [known for known in self._issuers.values() if known.issuer.introspection_url is not None]

    def accepts(self, token: str) -> bool:
        """Return True for a JWT or opaque token of a configured issuer.

        Opaque tokens need an issuer with introspection.
        """
        return self._find_issuer(token) is not None

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        """Return the principal of the token. See `Verifier`.

        Takes one indexed query, and more when a new subject is linked to an account.
        """
        match = self._find_issuer(token)
        if match is None:
            raise AuthError("invalid_token", INVALID_MESSAGE)
        state, parts = match
        issuer = state.issuer

        try:
            claims = await state.verify_claims(token, parts)
            self._check_claims(claims, issuer, resource)
            token_claims = claims_of.map_claims(claims, issuer)
            user = await find_user(token_claims, issuer)
        except MalformedInput as problem:
            # The subject is not logged: the content of a rejected token is untrusted text.
            logger.info("Rejected a token of %s: %s", issuer.issuer, problem)
            raise AuthError("invalid_token", INVALID_MESSAGE) from None
        except KeysUnavailable:
            raise AuthError("unavailable", _UNAVAILABLE_MESSAGE, retry_after=MIN_FETCH_INTERVAL_SECONDS) from None
        except ProviderUnreachable as problem:
            logger.error("Issuer %s cannot be reached: %s", issuer.issuer, problem)
            raise AuthError("unavailable", _UNAVAILABLE_MESSAGE, retry_after=RETRY_AFTER_SECONDS) from None
        except DatabaseFailure as problem:
            logger.error("External identities cannot be read: %s", problem)
            raise AuthError("unavailable", "Tokens cannot be verified at the moment; try again later") from None

        if user is None and issuer.require_user:
            logger.info("Rejected a token of %s: %r is not linked to a user", issuer.issuer, token_claims.subject)
            raise AuthError("invalid_token", INVALID_MESSAGE)
        if user is not None and not user.is_active:
            raise AuthError("invalid_token", INVALID_MESSAGE)
        return _build_principal(token_claims, user, resource, issuer.leeway)

    def reload(self, principal: DjangoPrincipal) -> DjangoPrincipal | None:
        """Return the principal if its issuer is configured, and its subject is linked to the same account.

        A revocation at the issuer is not seen, because nothing can be asked without the token.
        """
        if principal.kind != EXTERNAL_KIND:
            return None
        state = self._issuers.get(principal.issuer)
        names = {"issuer": principal.issuer, "subject": principal.subject}
        linked = ExternalIdentity.objects.filter(**names).values_list("user", flat=True).first()
        if state is None or linked != getattr(principal.user, "pk", None):
            raise AuthError("invalid_token", INVALID_MESSAGE)
        if linked is None and state.issuer.require_user:
            raise AuthError("invalid_token", INVALID_MESSAGE)
        return principal

    def _find_issuer(self, token: str) -> "tuple[_IssuerState, ParsedToken | None] | None":
        """Return the issuer of a token, and its parsed form for a JWT, or None."""
        if token.startswith(OWN_TOKEN_PREFIX) or not token.isascii():
            return None
        if not is_jwt_shaped(token):
            matching = (state for state in self._introspecting if token.startswith(state.issuer.prefix or ""))
            return next(((state, None) for state in matching), None)
        try:
            parts = parse_jwt(token)
        except MalformedInput:
            return None
        name = parts.claims.get("iss")
        state = self._issuers.get(name) if isinstance(name, str) else None
        return None if state is None else (state, parts)

    def _check_claims(self, claims: Mapping[str, Any], issuer: IssuerSettings, resource: ProtectedResource) -> None:
        claims_of.check_token_kind(claims)
        claims_of.check_dates(claims, issuer, time())
        audiences = {*issuer.audiences.get("", ()), *issuer.audiences.get(resource.server, ())}
        if not any(one in audiences or resource.matches_audience(one) for one in claims_of.get_audiences(claims)):
            raise MalformedInput("it is for another resource")


class _IssuerState:
    """State of one issuer: its keys and its introspection client."""

    def __init__(self, issuer: IssuerSettings) -> None:
        self.issuer = issuer
        self._keys = KeySet(issuer)
        self._introspector = Introspector(issuer)

    async def verify_claims(self, token: str, parts: ParsedToken | None) -> Mapping[str, Any]:
        """Return the claims that the issuer confirms, by signature or by introspection.

        Raises:
            MalformedInput: the token is invalid.
            KeysUnavailable: the keys are unknown at the moment.
            ProviderUnreachable: the issuer gave no usable response.
        """
        if parts is None or not self.issuer.has_keys:
            return await self._introspector.introspect(token)
        if parts.algorithm not in self.issuer.algorithms:
            raise MalformedInput("its algorithm is not accepted")
        if parts.type != ACCESS_TOKEN_TYPE and (self.issuer.require_type or parts.type not in LENIENT_TYPES):
            raise MalformedInput("its type is not an access token type")
        if missing := next((name for name in _REQUIRED_CLAIMS if name not in parts.claims), None):
            raise MalformedInput(f"it lacks the claim {missing}")
        # Check expiry first: an expired token needs neither a key fetch nor a signature check.
        claims_of.check_dates(parts.claims, self.issuer, time())
        key = await self._keys.find(parts.kid, parts.algorithm)
        if key is None:
            raise MalformedInput("its key is unknown")
        if not key.is_signature_valid(token, parts.algorithm):
            raise MalformedInput("its signature is wrong")
        return parts.claims


def _build_principal(
    token_claims: TokenClaims, user: Any, resource: ProtectedResource, leeway: float
) -> DjangoPrincipal:
    return DjangoPrincipal(
        issuer=token_claims.issuer,
        subject=token_claims.subject,
        client_id=token_claims.client_id,
        user=user,
        scopes=token_claims.scopes,
        # Expiry at the latest moment of acceptance: the provider's clock may differ by the leeway.
        expires_at=None if token_claims.expires_at is None else token_claims.expires_at + leeway,
        kind=EXTERNAL_KIND,
        token_id=token_claims.token_id,
        audience=resource.server,
        claims=token_claims.claims,
    )


class Introspector:
    """Introspection at one issuer.

    Only responses for active tokens are cached, by a digest of the token.
    """

    def __init__(self, issuer: IssuerSettings) -> None:
        self._issuer = issuer
        self._cache: dict[bytes, tuple[Mapping[str, Any], float]] = {}
        self._lock = threading.Lock()
        self._open_requests = 0

    async def introspect(self, token: str) -> Mapping[str, Any]:
        """Return the issuer's response for an active token.

        Raises:
            MalformedInput: the token is inactive, or belongs to another issuer.
            ProviderUnreachable: no usable response.
        """
        digest = hashlib.sha256(token.encode("ascii")).digest()
        cached = self._cache.get(digest)
        if cached is not None and monotonic() < cached[1]:
            return cached[0]

        response = MappingProxyType(await self._request(token))
        if response.get("active") is not True:
            raise MalformedInput("it is not active")
        if "iss" in response and response["iss"] != self._issuer.issuer:
            raise MalformedInput("it belongs to another issuer")
        self._add_to_cache(digest, response)
        return response

    async def _request(self, token: str) -> dict[str, Any]:
        issuer = self._issuer
        if issuer.introspection_url is None or issuer.client_id is None or issuer.client_secret is None:
            raise ProviderUnreachable("it has no INTROSPECTION_URL")
        form = {"token": token, "token_type_hint": "access_token"}
        basic = None
        if issuer.client_auth == "post":
            form |= {"client_id": issuer.client_id, "client_secret": issuer.client_secret}
        else:
            # RFC 6749, section 2.3.1: form-encode both before they become a Basic credential.
            basic = quote_plus(issuer.client_id), quote_plus(issuer.client_secret)

        if self._open_requests >= MAX_OPEN_REQUESTS:
            raise ProviderUnreachable(f"{MAX_OPEN_REQUESTS} introspection requests to it are open")
        with self._lock:
            self._open_requests += 1
        try:
            return await fetch_json(
                issuer.introspection_url, max_bytes=MAX_RESPONSE_BYTES, ca_file=issuer.ca_file, form=form, basic=basic
            )
        finally:
            with self._lock:
                self._open_requests -= 1

    def _add_to_cache(self, digest: bytes, response: Mapping[str, Any]) -> None:
        seconds = self._issuer.introspection_cache
        expires = response.get("exp")
        if isinstance(expires, int | float):
            seconds = min(seconds, expires - time())
        if seconds <= 0:
            return
        with self._lock:
            self._cache.pop(digest, None)
            while len(self._cache) >= MAX_CACHED_RESPONSES:
                del self._cache[next(iter(self._cache))]
            self._cache[digest] = response, monotonic() + seconds
