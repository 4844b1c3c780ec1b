"""Tokens of the project itself (client credentials), by the official SDK."""

from typing import Any

import httpx2
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)

from mcp_django.client.oauth.discovery import CLIENT_AUTH, Challenge, Memory, drive, probe, scopes_to_ask
from mcp_django.client.oauth.http import AuthorizationFailed, Outgoing, web_url
from mcp_django.client.oauth.token_endpoint import grant_of, read_token
from mcp_django.client.oauth.token_store import Grant
from mcp_django.conf.clients import ClientAuth, ClientSettings


class _SecretProvider(ClientCredentialsOAuthProvider):
    """The SDK's provider, which records its token request."""

    asked: httpx2.Request | None = None

    async def _perform_authorization(self) -> httpx2.Request:
        self.asked = await super()._perform_authorization()
        return self.asked


class _KeyProvider(PrivateKeyJWTOAuthProvider):
    asked: httpx2.Request | None = None

    async def _perform_authorization(self) -> httpx2.Request:
        self.asked = await super()._perform_authorization()
        return self.asked


async def obtain(settings: ClientSettings, outgoing: Outgoing, challenge: Challenge | None) -> Grant:
    """Obtain tokens. Raises AuthorizationFailed."""
    auth = settings.auth
    if auth is None or auth.client_id is None or auth.issuer is None:
        raise AuthorizationFailed("Client credentials require CLIENT_ID and ISSUER")
    provider = _provider(web_url(settings.url or ""), auth)
    asked = scopes_to_ask(auth, challenge or await probe(settings, outgoing))
    await drive(provider, outgoing, asked, stop=lambda outbound: outbound is provider.asked)
    assert provider.asked is not None
    outgoing.check(str(provider.asked.url))
    token = await read_token(await outgoing.send(provider.asked))
    return grant_of(provider.context, token, scope=provider.context.client_metadata.scope)


def _provider(url: str, auth: ClientAuth) -> "_SecretProvider | _KeyProvider":
    assert auth.client_id is not None
    common: dict[str, Any] = {"client_id": auth.client_id, "issuer": auth.issuer}
    if auth.private_key is None:
        return _SecretProvider(
            url,
            Memory(None),
            client_secret=auth.client_secret or "",
            token_endpoint_auth_method=CLIENT_AUTH[auth.client_auth],
            **common,
        )
    signed = SignedJWTParameters(
        issuer=auth.client_id,
        subject=auth.client_id,
        signing_key=auth.private_key,
        signing_algorithm=auth.algorithm,
    )
    sign = signed.create_assertion_provider()

    async def asserted(audience: str) -> str:
        try:
            return await sign(audience)
        except Exception:  # raised by several libraries, possibly with the key in the text
            raise AuthorizationFailed(f"PRIVATE_KEY is not a valid key for {auth.algorithm}") from None

    return _KeyProvider(url, Memory(None), assertion_provider=asserted, **common)
