"""Verifier "oauth" of `MCP["AUTH"]`: access tokens of the embedded authorization server."""

import logging

from django.db import Error as DatabaseFailure

from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, UNAVAILABLE_MESSAGE, AuthError, Verifier
from mcp_django.auth.principal import PROJECT_ISSUER, DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.contrib.oauth.tokens import access_tokens
from mcp_django.contrib.oauth.tokens.token_format import is_access_token

logger = logging.getLogger("mcp_django.oauth")


class AccessTokenVerifier:
    """Verifier that needs one indexed query.

    Refresh tokens, codes and foreign tokens are rejected by their form.
    """

    def accepts(self, token: str) -> bool:
        """Return True for the form of this server's access tokens, checksum included."""
        return is_access_token(token)

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        """Return the principal of a token issued for `resource`; see `Verifier`."""
        try:
            row = await access_tokens.find_rows(token).afirst()
        except DatabaseFailure as problem:
            logger.error("Reading access tokens failed: %s", problem)
            raise AuthError("unavailable", UNAVAILABLE_MESSAGE) from None
        if (
            row is None
            or not access_tokens.is_usable(row)
            or not any(map(resource.matches_audience, access_tokens.get_resources(row)))
        ):
            raise AuthError("invalid_token", INVALID_MESSAGE)
        return DjangoPrincipal(
            issuer=PROJECT_ISSUER,
            subject=str(row.user.pk),
            client_id=row.application.client_id,
            user=row.user,
            scopes=frozenset(access_tokens.get_scopes(row)),
            expires_at=row.expires.timestamp(),
            kind="oauth",
            token_id=row.pk,
            audience=resource.uri,
        )


def verifier() -> Verifier:
    """Return the verifier for "oauth" in `MCP["AUTH"]`."""
    return AccessTokenVerifier()
