"""Access tokens: lookup, validation, and the verifier "oauth" of `MCP["AUTH"]`."""

from dataclasses import replace
from typing import Any, Final

from django.db import Error as DatabaseFailure
from django.db.models import QuerySet
from django.utils import timezone

from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, UNAVAILABLE_MESSAGE, AuthError, Verifier
from mcp_django.auth.resource import ProtectedResource
from mcp_django.contrib.oauth.tokens.granted_scopes import find_granted_scopes
from mcp_django.contrib.oauth.tokens.resource_indicators import filter_allowed
from mcp_django.contrib.oauth.tokens.token_format import digest, is_access_token
from mcp_django.contrib.oauth.toolkit_compat import (
    get_access_token_model,
    get_application_model,
    get_primary_queryset,
    oauth2_settings,
)
from mcp_django.extensions.callers import PROJECT_ISSUER, DjangoPrincipal
from mcp_django.extensions.calls import get_logger

logger = get_logger("mcp_django.oauth")
OAUTH_KIND: Final = "oauth"
"""`Principal.kind` of callers with such a token."""


def find_rows(token: str) -> "QuerySet[Any]":
    """Return a query set of an access token's row, with user, application and profile.

    It is one query by a unique index.
    """
    queryset = get_primary_queryset(get_access_token_model()).filter(token_checksum=digest(token))
    return queryset.select_related("user", "application", "application__mcp_profile", "refresh_token")


def is_usable(row: Any) -> bool:
    """Return True if the token is valid for its own resources.

    The token has at least one resource, is not expired, and its user and client are active. Tokens that manage a
    registration (RFC 7592) are in the same table, but are not valid for resources.
    """
    application, user = row.application, row.user
    if application is None or user is None or not user.is_active or not row.resource:
        return False
    if row.expires <= timezone.now() or oauth2_settings.DCR_REGISTRATION_SCOPE in row.scope.split():
        return False

    profile = getattr(application, "mcp_profile", None)
    if profile is not None and profile.blocked:
        return False
    if application.authorization_grant_type == get_application_model().GRANT_CLIENT_CREDENTIALS:
        # The user did not consent: an operator lets the client act for this user, and may have changed that.
        return profile is not None and profile.trusted and profile.service_user_id == user.pk
    return True


def get_scopes(row: Any) -> list[str]:
    """Return the consented scopes that an operator still allows the client."""
    allowed = getattr(getattr(row.application, "mcp_profile", None), "allowed_scopes", None)
    return [scope for scope in row.scope.split() if allowed is None or scope in allowed]


def get_resources(row: Any) -> list[str]:
    """Return the canonical URLs of the token that an operator still allows the client."""
    return filter_allowed(row.application, row.resource)


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
            row = await find_rows(token).afirst()
        except DatabaseFailure as problem:
            logger.error("Reading access tokens failed: %s", problem)
            raise AuthError("unavailable", UNAVAILABLE_MESSAGE) from None
        if row is None or not is_usable(row) or not any(map(resource.matches_audience, get_resources(row))):
            raise AuthError("invalid_token", INVALID_MESSAGE)
        return DjangoPrincipal(
            issuer=PROJECT_ISSUER,
            subject=str(row.user.pk),
            client_id=row.application.client_id,
            user=row.user,
            scopes=frozenset(get_scopes(row)),
            expires_at=row.expires.timestamp(),
            kind=OAUTH_KIND,
            token_id=row.pk,
            grant_id=_get_family(row),
            audience=resource.uri,
        )

    def reload(self, principal: DjangoPrincipal) -> DjangoPrincipal | None:
        """Return the principal with the scopes of its grant now. The access token itself may have expired."""
        if principal.kind != OAUTH_KIND or principal.issuer != PROJECT_ISSUER:
            return None
        scopes = find_granted_scopes(principal)
        if scopes is None:
            raise AuthError("invalid_token", INVALID_MESSAGE)
        return replace(principal, scopes=scopes)


def _get_family(row: Any) -> str | None:
    """Return the family of the refresh token that was issued with an access token."""
    refresh = getattr(row, "refresh_token", None)
    return None if refresh is None or refresh.token_family is None else str(refresh.token_family)


def verifier() -> Verifier:
    """Return the verifier for "oauth" in `MCP["AUTH"]`."""
    return AccessTokenVerifier()
