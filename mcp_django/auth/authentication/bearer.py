"""Bearer token authentication, by the verifier that accepts the token's shape."""

import logging
import re
import traceback
from collections.abc import Sequence
from time import time
from typing import Any, Final

from mcp_django.auth.authentication.refusals import build_forbidden
from mcp_django.auth.authentication.shared_cache import SharedPrincipalCache
from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, UNAVAILABLE_MESSAGE, AuthError, Verifier
from mcp_django.auth.authorization.scopes import FilterScopes, PrincipalRefused
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.server.ports import Executor, Overloaded

logger = logging.getLogger("mcp_django.auth")

MAX_TOKEN_BYTES: Final = 8 * 1024
"""Maximum length of an access token in bytes."""
_TOKEN_PATTERN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1


class BearerAuthenticator:
    """Bearer token authenticator of one server.

    `shared_cache` holds principals that other processes verified.
    """

    def __init__(
        self,
        verifiers: Sequence[Verifier],
        *,
        executor: Executor,
        filter_scopes: FilterScopes | None = None,
        shared_cache: SharedPrincipalCache | None = None,
    ) -> None:
        """`filter_scopes` returns a verified principal with its effective scopes."""
        self.verifiers = tuple(verifiers)
        self._executor = executor
        self._filter_scopes = filter_scopes
        self._shared_cache = shared_cache

    def __bool__(self) -> bool:
        """Return True if tokens are accepted at all."""
        return bool(self.verifiers)

    async def authenticate(self, token: str, resource: ProtectedResource, digest: bytes) -> DjangoPrincipal:
        """Return the principal of `token` at `resource`.

        `digest` is its key in the shared cache.

        Raises:
            AuthError: the token is invalid, or cannot be verified at the moment.
            TransportRefusal: the project refuses the principal.
        """
        shared_cache = self._shared_cache
        if shared_cache is None:
            return await self.apply_scope_filter(await self._verify(token, resource), resource)

        with self._executor.context():
            try:
                principal = await self._executor.run(shared_cache.find, digest)
                if principal is None:
                    started_at = time()
                    principal = await self._verify(token, resource)
                    await self._executor.run(shared_cache.add, digest, principal, started_at)
            except Overloaded as problem:
                raise AuthError("unavailable", str(problem), retry_after=problem.retry_after) from None
        return await self.apply_scope_filter(principal, resource)

    async def _verify(self, token: str, resource: ProtectedResource) -> DjangoPrincipal:
        principal = await self._call_verifier(token, resource)
        if principal.expires_at is not None and principal.expires_at <= time():
            raise AuthError("invalid_token", INVALID_MESSAGE)
        if principal.audience not in (None, resource.server) and not resource.matches_audience(principal.audience):
            raise AuthError("invalid_token", INVALID_MESSAGE)
        return principal

    async def _call_verifier(self, token: str, resource: ProtectedResource) -> DjangoPrincipal:
        """Call the verifier that accepts tokens of this shape."""
        verifier: Verifier | None = None
        with self._executor.context():
            try:
                verifier = next((one for one in self.verifiers if one.accepts(token)), None)
                if verifier is None:
                    raise AuthError("invalid_token", INVALID_MESSAGE)
                principal: Any = await verifier.verify(token, resource=resource)
                if not isinstance(principal, DjangoPrincipal) or principal.is_local:
                    raise TypeError(
                        f"verify() must return a Principal that is not local, not {type(principal).__name__}"
                    )
            except AuthError:
                raise
            except Overloaded as problem:
                raise AuthError("unavailable", str(problem), retry_after=problem.retry_after) from None
            except Exception as problem:
                # A project's verifier failed. The request gets a temporary error, so that clients keep their tokens.
                text = "".join(traceback.format_exception(problem)).replace(token, "[token]")
                logger.error("Unhandled exception in the verifier %s\n%s", type(verifier).__name__, text)
                raise AuthError("unavailable", UNAVAILABLE_MESSAGE) from None

        return principal

    async def apply_scope_filter(self, principal: DjangoPrincipal, resource: ProtectedResource) -> DjangoPrincipal:
        """Return the principal with its effective scopes.

        Raises AuthError and TransportRefusal.
        """
        if self._filter_scopes is None:
            return principal
        with self._executor.context():
            try:
                return await self._filter_scopes(principal, resource=resource)
            except PrincipalRefused:
                raise build_forbidden("Access to this server is denied for this caller") from None
            except Overloaded as problem:
                raise AuthError("unavailable", str(problem), retry_after=problem.retry_after) from None


def parse_bearer_token(credential: bytes) -> str | None:
    """Return the token, or None if the credential has another scheme.

    Raises AuthError.
    """
    scheme, _, token = credential.strip(b" ").partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    token = token.strip(b" ")
    if len(token) > MAX_TOKEN_BYTES:
        raise AuthError("invalid_request", f"The access token is longer than {MAX_TOKEN_BYTES} bytes")
    if not _TOKEN_PATTERN.fullmatch(token):
        raise AuthError("invalid_token", INVALID_MESSAGE)
    return token.decode("ascii")
