"""Bearer token authentication, by the verifier that accepts the token's shape."""

import logging
import re
import traceback
from collections.abc import Sequence
from time import time
from typing import Any, Final

from mcp_django.auth.authentication.refusals import forbidden
from mcp_django.auth.authentication.shared_cache import Shared
from mcp_django.auth.authentication.verifiers import INVALID, UNAVAILABLE, AuthError, Verifier
from mcp_django.auth.authorization.scopes import Narrow, Refused
from mcp_django.auth.principal import Principal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.server.ports import Executor, Overloaded

logger = logging.getLogger("mcp_django.auth")

LONGEST_TOKEN: Final = 8 * 1024
"""Maximum length of an access token in bytes."""
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1


class Bearers:
    """Bearer token authenticator of one server.

    `shared_cache` holds principals that other processes verified.
    """

    def __init__(
        self,
        verifiers: Sequence[Verifier],
        *,
        executor: Executor,
        narrow: Narrow | None = None,
        shared: Shared | None = None,
    ) -> None:
        """`filter_scopes` returns a verified principal with its effective scopes."""
        self.verifiers, self._executor, self._narrow, self._shared = tuple(verifiers), executor, narrow, shared

    def __bool__(self) -> bool:
        """Return True if tokens are accepted at all."""
        return bool(self.verifiers)

    async def principal(self, token: str, resource: ProtectedResource, digest: bytes) -> Principal:
        """Return the principal of `token` at `resource`.

        `digest` is its key in the shared cache.

        Raises:
            AuthError: the token is invalid, or cannot be verified at the moment.
            TransportRefusal: the project refuses the principal.
        """
        shared = self._shared
        if shared is None:
            return await self.narrowed(await self._verified(token, resource), resource)

        lease = self._executor.enter()
        try:
            found = await self._executor.run(shared.find, digest)
            if found is None:
                begun = time()
                found = await self._verified(token, resource)
                await self._executor.run(shared.keep, digest, found, begun)
        except Overloaded as problem:
            raise AuthError("unavailable", str(problem), retry_after=problem.retry_after) from None
        finally:
            lease.close()
        return await self.narrowed(found, resource)

    async def _verified(self, token: str, resource: ProtectedResource) -> Principal:
        principal = await self._ask(token, resource)
        if principal.expires_at is not None and principal.expires_at <= time():
            raise AuthError("invalid_token", INVALID)
        if principal.audience not in (None, resource.server) and not resource.is_meant(principal.audience):
            raise AuthError("invalid_token", INVALID)
        return principal

    async def _ask(self, token: str, resource: ProtectedResource) -> Principal:
        """Call the verifier that accepts tokens of this shape."""
        lease = self._executor.enter()
        verifier: Verifier | None = None
        try:
            verifier = next((one for one in self.verifiers if one.accepts(token)), None)
            if verifier is None:
                raise AuthError("invalid_token", INVALID)
            principal: Any = await verifier.verify(token, resource=resource)
            if not isinstance(principal, Principal) or principal.is_local:
                raise TypeError(f"verify() must return a Principal that is not local, not {type(principal).__name__}")
        except AuthError:
            raise
        except Overloaded as problem:
            raise AuthError("unavailable", str(problem), retry_after=problem.retry_after) from None
        except Exception as problem:
            # A project's verifier failed. The request gets a temporary error, so that clients keep their tokens.
            text = "".join(traceback.format_exception(problem)).replace(token, "[token]")
            logger.error("Unhandled exception in the verifier %s\n%s", type(verifier).__name__, text)
            raise AuthError("unavailable", UNAVAILABLE) from None
        finally:
            lease.close()

        return principal

    async def narrowed(self, principal: Principal, resource: ProtectedResource) -> Principal:
        """Return the principal with its effective scopes.

        Raises AuthError and TransportRefusal.
        """
        if self._narrow is None:
            return principal
        lease = self._executor.enter()
        try:
            return await self._narrow(principal, resource=resource)
        except Refused:
            raise forbidden("Access to this server is denied for this caller") from None
        except Overloaded as problem:
            raise AuthError("unavailable", str(problem), retry_after=problem.retry_after) from None
        finally:
            lease.close()


def bearer_token(credential: bytes) -> str | None:
    """Return the token, or None if the credential has another scheme.

    Raises AuthError.
    """
    scheme, _, token = credential.strip(b" ").partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    token = token.strip(b" ")
    if len(token) > LONGEST_TOKEN:
        raise AuthError("invalid_request", f"The access token is longer than {LONGEST_TOKEN} bytes")
    if not _TOKEN.fullmatch(token):
        raise AuthError("invalid_token", INVALID)
    return token.decode("ascii")
