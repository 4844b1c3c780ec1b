"""Requests to a token endpoint: exchange a code, refresh tokens, and revoke them."""

import math
import re
import time
from dataclasses import replace
from typing import Any, Final

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import handle_token_response_scopes, issuers_match
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from mcp_django.client.oauth.discovery import (
    RegistrationStorage,
    get_configured_client,
    get_issuer,
    merge_scopes,
    validate_scopes,
)
from mcp_django.client.oauth.http import AuthorizationFailed, OAuthHTTPClient
from mcp_django.client.oauth.token_store import TokenGrant
from mcp_django.conf.clients import ClientAuth

MAX_TOKEN_LENGTH: Final = 16 * 1024
"""Maximum length of a token, in characters."""
MAX_LIFETIME_SECONDS: Final = 10 * 365 * 24 * 3600
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ERROR = re.compile(rb'"error"\s*:\s*"([a-z_]{1,64})"')
GRANT_LOST_ERRORS: Final = frozenset({"invalid_grant", "unauthorized_client", "invalid_client"})
"""Errors after which the refresh token is invalid (RFC 6749, section 5.2)."""


class GrantLost(AuthorizationFailed):
    """The authorization server rejects the code or refresh token.

    `error` is its error code.
    """

    def __init__(self, error: str) -> None:
        super().__init__("The authorization server rejects this authorization")
        self.error = error


async def renew_grant(
    grant: TokenGrant, http_client: OAuthHTTPClient, server_url: str, auth: ClientAuth | None = None
) -> TokenGrant:
    """Renew the tokens of `grant` by its refresh token.

    Raises GrantLost, AuthorizationFailed.
    """
    if grant.refresh_token is None:
        raise GrantLost("invalid_grant")
    context = _create_context(grant, server_url, auth)
    data = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
    if grant.resource:
        data["resource"] = grant.resource
    token = await request_token(context, http_client, data, endpoint=grant.token_endpoint)
    return update_grant(grant, token)


async def revoke_grant(
    grant: TokenGrant, http_client: OAuthHTTPClient, server_url: str, auth: ClientAuth | None = None
) -> bool:
    """Revoke tokens (RFC 7009). Returns False if the server is unreachable or refuses."""
    if not grant.revocation_endpoint:
        return False
    tokens = [("refresh_token", grant.refresh_token), ("access_token", grant.access_token)]
    context, is_revoked = _create_context(grant, server_url, auth), True
    for hint, token in tokens:
        if token is None:
            continue
        try:
            sent = _build_request(context, grant.revocation_endpoint, {"token": token, "token_type_hint": hint})
            response = await http_client.send(sent)
        except (AuthorizationFailed, OAuthFlowError):
            return False
        is_revoked = is_revoked and response.status_code == 200
    return is_revoked


async def request_token(
    context: OAuthContext, http_client: OAuthHTTPClient, data: dict[str, str], *, endpoint: str | None = None
) -> OAuthToken:
    """Send a token request. Raises GrantLost, AuthorizationFailed."""
    try:
        return await read_token(
            await http_client.send(_build_request(context, endpoint or get_token_endpoint(context), data))
        )
    except OAuthFlowError:
        raise AuthorizationFailed(
            "This project cannot authenticate by a method that the authorization server accepts"
        ) from None


async def read_token(response: httpx2.Response) -> OAuthToken:
    """Parse the tokens of a response.

    Raises GrantLost, AuthorizationFailed; neither quotes the response.
    """
    if response.status_code not in (200, 201):
        match = _ERROR.search(response.content) if 400 <= response.status_code < 500 else None
        error = match[1].decode() if match else ""
        if error in GRANT_LOST_ERRORS:
            raise GrantLost(error)
        raise AuthorizationFailed(
            f"The authorization server refused to issue a token ({error or response.status_code})"
        )

    try:
        token = await handle_token_response_scopes(response)
    except OAuthFlowError:
        raise AuthorizationFailed("The authorization server sent an invalid token response") from None
    for secret in (token.access_token, token.refresh_token):
        # Tokens are sent in a header.
        if secret is not None and (len(secret) > MAX_TOKEN_LENGTH or not _TOKEN.fullmatch(secret)):
            raise AuthorizationFailed("The authorization server sent an invalid token")
    return token


def create_grant(context: OAuthContext, token: OAuthToken, *, scope: str | None) -> TokenGrant:
    """Create the first grant.

    Without scopes in the response, the requested ones apply (RFC 6749, section 5.1).
    """
    metadata = context.oauth_metadata
    revocation = metadata.revocation_endpoint if metadata is not None else None
    client = context.client_info
    client_fields = {"client_id", "client_secret", "token_endpoint_auth_method", "redirect_uris"}

    return TokenGrant(
        issuer=get_issuer(context),
        access_token=token.access_token,
        refresh_token=token.refresh_token,
        scope=validate_scopes(token.scope) or scope,
        token_endpoint=get_token_endpoint(context),
        revocation_endpoint=None if revocation is None else str(revocation),
        resource=context.get_resource_url(),
        client={} if client is None else client.model_dump(mode="json", include=client_fields, exclude_none=True),
        **_get_expiry(token),
    )


def update_grant(grant: TokenGrant, token: OAuthToken) -> TokenGrant:
    """Create the renewed grant.

    Omitted members keep their values (RFC 6749, section 6).
    """
    return replace(
        grant,
        access_token=token.access_token,
        refresh_token=token.refresh_token or grant.refresh_token,
        scope=validate_scopes(token.scope) or grant.scope,
        **_get_expiry(token),
    )


def get_token_endpoint(context: OAuthContext) -> str:
    """Return the URL of the token endpoint.

    Without metadata it is the default path of early revisions.
    """
    if context.oauth_metadata is not None:
        return str(context.oauth_metadata.token_endpoint)
    return context.get_authorization_base_url(context.server_url) + "/token"


def _build_request(context: OAuthContext, url: str, data: dict[str, str]) -> httpx2.Request:
    client = context.client_info
    if client is None:
        raise AuthorizationFailed("No client id for the authorization server; set CLIENT_ID")
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    form, headers = context.prepare_token_auth({**data, "client_id": client.client_id}, headers)
    return httpx2.Request("POST", url, data=form, headers=headers)


def _create_context(grant: TokenGrant, server_url: str, auth: ClientAuth | None) -> OAuthContext:
    client = OAuthClientInformationFull.model_validate(grant.client)
    is_same_issuer = auth is not None and (auth.issuer is None or issuers_match(grant.issuer, auth.issuer))
    if auth is not None and is_same_issuer and auth.client_id == client.client_id:
        client = get_configured_client(auth, None) or client  # the configured secret may have changed
    metadata = OAuthClientMetadata(redirect_uris=None, scope=merge_scopes(grant.scope))
    return OAuthContext(server_url, metadata, RegistrationStorage(client), None, None, client_info=client)


def _get_expiry(token: OAuthToken) -> dict[str, Any]:
    lifetime = token.expires_in
    if lifetime is None or not math.isfinite(lifetime) or lifetime < 0:
        return {"expires_at": None, "lifetime": 0.0}
    lifetime = min(lifetime, MAX_LIFETIME_SECONDS)
    return {"expires_at": time.time() + lifetime, "lifetime": float(lifetime)}
