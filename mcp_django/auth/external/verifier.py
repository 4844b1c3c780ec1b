"""Verifier for tokens of external identity providers: `MCP["ISSUERS"]`.

The shape of a token selects its issuer. A JWT is verified with the keys of the issuer that it names, if that one is
configured. An opaque token is sent to the one issuer whose prefix it has. No other issuer is tried: a provider never
receives tokens of another provider or of this project.
"""

import logging
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Final

from django.db import Error as DatabaseFailure

from mcp_django.auth.authentication.verifiers import INVALID, AuthError
from mcp_django.auth.external import claims as claims_of
from mcp_django.auth.external.accounts import find
from mcp_django.auth.external.claims import Said
from mcp_django.auth.external.http import Unreachable
from mcp_django.auth.external.introspection import Introspector
from mcp_django.auth.external.jwks import EVERY, KeySet, NoKeys
from mcp_django.auth.external.jwt import Parts, looks_like_one, parse
from mcp_django.auth.external.strict_json import Malformed
from mcp_django.auth.principal import Principal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.conf.issuers import OWN_TOKENS, Issuer

logger = logging.getLogger("mcp_django.auth")

KIND: Final = "external"
"""`Principal.kind` of callers with such a token."""
ACCESS_TOKEN: Final = "at+jwt"
LOOSE_TYPES: Final = (ACCESS_TOKEN, "jwt", "")
"""Allowed values of `typ` where REQUIRE_TYPE is off."""
RETRY: Final = 10.0
"""Seconds after which a client should retry while the issuer is unreachable."""
_LATER: Final = "Tokens of this issuer cannot be verified at the moment; try again later"
_MANDATORY = ("exp", "iat", "aud", "sub")


class ExternalVerifier:
    """Verifier for all configured issuers, with the cached state of each."""

    def __init__(self, issuers: Sequence[Issuer]) -> None:
        self._issuers = {issuer.issuer: _Known(issuer) for issuer in issuers}
        self._asked = [known for known in self._issuers.values() if known.issuer.introspection_url is not None]

    def accepts(self, token: str) -> bool:
        """Return True for a JWT or opaque token of a configured issuer.

        Opaque tokens need an issuer with introspection.
        """
        return self._of(token) is not None

    async def verify(self, token: str, *, resource: ProtectedResource) -> Principal:
        """Return the principal of the token. See `Verifier`.

        Takes one indexed query, and more when a new subject is linked to an account.
        """
        found = self._of(token)
        if found is None:
            raise AuthError("invalid_token", INVALID)
        known, parts = found
        issuer = known.issuer

        try:
            claims = await known.proved(token, parts)
            self._check(claims, issuer, resource)
            said = claims_of.read(claims, issuer)
            user = await find(said, issuer)
        except Malformed as problem:
            # The subject is not logged: the content of a rejected token is untrusted text.
            logger.info("Rejected a token of %s: %s", issuer.issuer, problem)
            raise AuthError("invalid_token", INVALID) from None
        except NoKeys:
            raise AuthError("unavailable", _LATER, retry_after=EVERY) from None
        except Unreachable as problem:
            logger.error("Issuer %s cannot be reached: %s", issuer.issuer, problem)
            raise AuthError("unavailable", _LATER, retry_after=RETRY) from None
        except DatabaseFailure as problem:
            logger.error("External identities cannot be read: %s", problem)
            raise AuthError("unavailable", "Tokens cannot be verified at the moment; try again later") from None

        if user is None and issuer.require_user:
            logger.info("Rejected a token of %s: %r is not linked to a user", issuer.issuer, said.subject)
            raise AuthError("invalid_token", INVALID)
        if user is not None and not user.is_active:
            raise AuthError("invalid_token", INVALID)
        return _principal(said, user, resource, issuer.leeway)

    def _of(self, token: str) -> "tuple[_Known, Parts | None] | None":
        """Return the issuer of a token, and its parsed form for a JWT, or None."""
        if token.startswith(OWN_TOKENS) or not token.isascii():
            return None
        if not looks_like_one(token):
            fitting = (known for known in self._asked if token.startswith(known.issuer.prefix or ""))
            return next(((known, None) for known in fitting), None)
        try:
            parts = parse(token)
        except Malformed:
            return None
        name = parts.claims.get("iss")
        known = self._issuers.get(name) if isinstance(name, str) else None
        return None if known is None else (known, parts)

    def _check(self, claims: Mapping[str, Any], issuer: Issuer, resource: ProtectedResource) -> None:
        claims_of.check_kind(claims)
        claims_of.check_dates(claims, issuer, time())
        named = {*issuer.audiences.get("", ()), *issuer.audiences.get(resource.server, ())}
        if not any(one in named or resource.is_meant(one) for one in claims_of.audiences_of(claims)):
            raise Malformed("it is for another resource")


class _Known:
    """State of one issuer: its keys and its introspection client."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self._keys = KeySet(issuer)
        self._introspector = Introspector(issuer)

    async def proved(self, token: str, parts: Parts | None) -> Mapping[str, Any]:
        """Return the claims that the issuer confirms, by signature or by introspection.

        Raises:
            MalformedInput: the token is invalid.
            KeysUnavailable: the keys are unknown at the moment.
            ProviderUnreachable: the issuer gave no usable response.
        """
        if parts is None or not self.issuer.has_keys:
            return await self._introspector.look_up(token)
        self._check_header(parts)
        if missing := next((name for name in _MANDATORY if name not in parts.claims), None):
            raise Malformed(f"it lacks the claim {missing}")
        # Check expiry first: an expired token needs neither a key fetch nor a signature check.
        claims_of.check_dates(parts.claims, self.issuer, time())
        key = await self._keys.find(parts.kid, parts.algorithm)
        if key is None:
            raise Malformed("its key is unknown")
        if not key.proves(token, parts.algorithm):
            raise Malformed("its signature is wrong")
        return parts.claims

    def _check_header(self, parts: Parts) -> None:
        if parts.algorithm not in self.issuer.algorithms:
            raise Malformed("its algorithm is not accepted")
        if parts.type != ACCESS_TOKEN and (self.issuer.require_type or parts.type not in LOOSE_TYPES):
            raise Malformed("its type is not an access token type")


def _principal(said: Said, user: Any, resource: ProtectedResource, leeway: float) -> Principal:
    return Principal(
        issuer=said.issuer,
        subject=said.subject,
        client_id=said.client_id,
        user=user,
        scopes=said.scopes,
        # Expiry at the latest moment of acceptance: the provider's clock may differ by the leeway.
        expires_at=None if said.expires_at is None else said.expires_at + leeway,
        kind=KIND,
        token_id=said.token_id,
        audience=resource.server,
        claims=said.claims,
    )
