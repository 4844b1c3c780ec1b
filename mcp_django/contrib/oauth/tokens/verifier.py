""" "oauth" in `MCP["AUTH"]`: the access tokens of this project's own authorization server."""

import logging

from django.db import Error as DatabaseFailure

from mcp_django.auth.authentication.verifiers import INVALID, UNAVAILABLE, AuthError, Verifier
from mcp_django.auth.principal import ISSUER, Principal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.contrib.oauth.tokens import access_tokens
from mcp_django.contrib.oauth.tokens.token_format import is_access_token

logger = logging.getLogger("mcp_django.oauth")


class AccessTokenVerifier:
    """One indexed query. Refresh tokens, codes and tokens of other makes are told apart by their shape."""

    def accepts(self, token: str) -> bool:
        """Is it of our shape, checksum included?"""
        return is_access_token(token)

    async def verify(self, token: str, *, resource: ProtectedResource) -> Principal:
        """See Verifier. The token has to be made for this very resource."""
        try:
            row = await access_tokens.rows(token).afirst()
        except DatabaseFailure as problem:
            logger.error("Access tokens cannot be read: %s", problem)
            raise AuthError("unavailable", UNAVAILABLE) from None
        if (
            row is None
            or not access_tokens.is_usable(row)
            or not any(map(resource.is_meant, access_tokens.resources_of(row)))
        ):
            raise AuthError("invalid_token", INVALID)
        return Principal(
            issuer=ISSUER,
            subject=str(row.user.pk),
            client_id=row.application.client_id,
            user=row.user,
            scopes=frozenset(access_tokens.scopes_of(row)),
            expires_at=row.expires.timestamp(),
            kind="oauth",
            token_id=row.pk,
            audience=resource.uri,
        )


def verifier() -> Verifier:
    """What `MCP["AUTH"]` means by "oauth"."""
    return AccessTokenVerifier()
