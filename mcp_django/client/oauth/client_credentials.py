"""Tokens of the project itself (client credentials), by the official SDK."""

from typing import Any

import httpx2
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)

from mcp_django.client.oauth.discovery import (
    CLIENT_AUTH_METHODS,
    Challenge,
    RegistrationStorage,
    choose_scopes,
    drive_provider,
    probe_server,
)
from mcp_django.client.oauth.http import AuthorizationFailed, OAuthHTTPClient, to_http_url
from mcp_django.client.oauth.token_endpoint import create_grant, read_token
from mcp_django.client.oauth.token_store import TokenGrant
from mcp_django.client.sdk_compat import BaseOAuthProvider
from mcp_django.conf.clients import ClientAuth, ClientSettings


class _TokenRequestRecorder(BaseOAuthProvider):
    """Mixin for the SDK's providers that records the token request."""

    token_request: httpx2.Request | None = None

    async def build_token_request(self) -> httpx2.Request:
        self.token_request = await super().build_token_request()
        return self.token_request


class _SecretProvider(_TokenRequestRecorder, ClientCredentialsOAuthProvider):
    """Provider that authenticates the client by its secret."""


class _KeyProvider(_TokenRequestRecorder, PrivateKeyJWTOAuthProvider):
    """Provider that authenticates the client by a JWT signed with its private key."""


async def obtain_grant(
    settings: ClientSettings, http_client: OAuthHTTPClient, challenge: Challenge | None
) -> TokenGrant:
    """Obtain tokens. Raises AuthorizationFailed."""
    auth = settings.auth
    if auth is None or auth.client_id is None or auth.issuer is None:
        raise AuthorizationFailed("Client credentials require CLIENT_ID and ISSUER")
    provider = _create_provider(to_http_url(settings.url or ""), auth)
    effective_challenge = choose_scopes(auth, challenge or await probe_server(settings, http_client))
    await drive_provider(
        provider, http_client, effective_challenge, should_stop=lambda outbound: outbound is provider.token_request
    )
    assert provider.token_request is not None
    http_client.check_url(str(provider.token_request.url))
    token = await read_token(await http_client.send(provider.token_request))
    return create_grant(provider.context, token, scope=provider.context.client_metadata.scope)


def _create_provider(url: str, auth: ClientAuth) -> _TokenRequestRecorder:
    assert auth.client_id is not None
    common: dict[str, Any] = {"client_id": auth.client_id, "issuer": auth.issuer}
    if auth.private_key is None:
        return _SecretProvider(
            url,
            RegistrationStorage(None),
            client_secret=auth.client_secret or "",
            token_endpoint_auth_method=CLIENT_AUTH_METHODS[auth.client_auth],
            **common,
        )
    signed = SignedJWTParameters(
        issuer=auth.client_id,
        subject=auth.client_id,
        signing_key=auth.private_key,
        signing_algorithm=auth.algorithm,
    )
    sign = signed.create_assertion_provider()

    async def create_assertion(audience: str) -> str:
        try:
            return await sign(audience)
        except Exception:  # raised by several libraries, possibly with the key in the text
            raise AuthorizationFailed(f"PRIVATE_KEY is not a valid key for {auth.algorithm}") from None

    return _KeyProvider(url, RegistrationStorage(None), assertion_provider=create_assertion, **common)
