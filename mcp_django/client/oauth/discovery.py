"""Discovery of authorization servers and registration, by the official SDK.

The SDK's provider fetches metadata (RFC 9728, RFC 8414), and compares issuers and resources. It registers, or uses a
given client id, or the URL of a metadata document. `drive_provider` sends its requests through `OAuthHTTPClient`. It
stops before a person or a token is needed, because that is another request, possibly on another worker.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext, check_registration_usable
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    handle_registration_response,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl

from mcp_django.client.oauth.http import AuthorizationFailed, OAuthHTTPClient, to_http_url
from mcp_django.client.sdk_compat import BaseOAuthProvider
from mcp_django.conf.clients import ClientAuth, ClientSettings

StopPredicate = Callable[[httpx2.Request], bool]
MAX_SCOPES_LENGTH: Final = 4000
CLIENT_AUTH_METHODS: Final[dict[str, Literal["client_secret_basic", "client_secret_post"]]] = {
    "basic": "client_secret_basic",
    "post": "client_secret_post",
}
_SCOPES = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
_CHALLENGED_URL = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,2000}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The authentication challenge of a refused request."""

    resource_metadata: str | None = None
    scopes: str | None = None
    is_scope_insufficient: bool = False
    """True if the request had a token with insufficient scopes."""

    @classmethod
    def from_response(cls, response: httpx2.Response) -> "Challenge | None":
        """Return the challenge of a response; None for other responses."""
        step_up = response.status_code == 403 and _get_error(response) == "insufficient_scope"
        if response.status_code != 401 and not step_up:
            return None
        metadata_url = extract_resource_metadata_from_www_auth(response)
        return cls(
            resource_metadata=metadata_url if metadata_url and _CHALLENGED_URL.fullmatch(metadata_url) else None,
            scopes=validate_scopes(extract_scope_from_www_auth(response)),
            is_scope_insufficient=step_up,
        )

    def to_response(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response from which the SDK's provider starts its flow."""
        parameters = []
        if self.resource_metadata:
            parameters.append(f'resource_metadata="{self.resource_metadata}"')
        if self.scopes:
            parameters.append(f'scope="{self.scopes}"')
        headers = {"WWW-Authenticate": "Bearer " + ", ".join(parameters)} if parameters else {}
        return httpx2.Response(401, headers=headers, request=request)


class RegistrationStorage:
    """Storage for the SDK's provider (`TokenStorage`); it only holds the registration."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.client = client
        self.is_new = False

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        raise AssertionError("the flow stops before tokens are issued")

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info
        self.is_new = True


class DiscoveryProvider(BaseOAuthProvider):
    """The SDK's provider, which ends with a placeholder request that is never sent."""

    def __init__(self, *args: Any, issuer: str | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stop_request = httpx2.Request("GET", "about:blank")
        self._issuer = issuer

    def select_authorization_server(self, advertised: list[str]) -> str:
        return choose_authorization_server(advertised, self._issuer)

    async def build_token_request(self) -> httpx2.Request:
        return self.stop_request


async def discover(
    settings: ClientSettings,
    http_client: OAuthHTTPClient,
    *,
    challenge: Challenge,
    redirect_uri: str,
    known_client: OAuthClientInformationFull | None,
    is_native: bool = False,
) -> tuple[OAuthContext, OAuthClientInformationFull | None]:
    """Discover the authorization server and the client to use.

    Also returns a new registration, if any. `known_client` is an earlier registration. `is_native` is True if the
    redirect leads to a program on the user's machine. Raises AuthorizationFailed.
    """
    auth = settings.auth or ClientAuth(type="oauth")
    storage = RegistrationStorage(get_configured_client(auth, redirect_uri) or known_client)
    metadata = OAuthClientMetadata(
        client_name=auth.client_name or "Django",
        redirect_uris=[AnyUrl(redirect_uri)],
        # Web clients require https (OpenID Connect Registration, section 2), which local development lacks.
        application_type="native" if is_native or redirect_uri.startswith("http://") else "web",
    )

    url = auth.client_metadata_url if not is_native else None
    provider = DiscoveryProvider(
        to_http_url(settings.url or ""), metadata, storage, client_metadata_url=url, issuer=auth.issuer
    )
    registers = auth.client_id is None
    await drive_provider(
        provider,
        http_client,
        challenge,
        should_stop=lambda outbound: outbound is provider.stop_request,
        may_register=registers,
    )

    context = provider.context
    check_metadata(context.oauth_metadata, auth.issuer)
    _set_auth_method(context)
    return context, storage.client if storage.is_new else None


async def probe_server(settings: ClientSettings, http_client: OAuthHTTPClient) -> Challenge:
    """Return the server's challenge to a request without a token."""
    body = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
    headers = {**settings.headers, "Accept": "application/json, text/event-stream"}
    url = to_http_url(settings.url or "")
    request = httpx2.Request("GET", url, headers=headers)
    if settings.kind != "sse":
        request = httpx2.Request("POST", url, headers=headers, json=body)
    try:
        return Challenge.from_response(await http_client.send(request, reads_body=False)) or Challenge()
    except ValueError:
        return Challenge()


async def drive_provider(
    provider: OAuthClientProvider,
    http_client: OAuthHTTPClient,
    challenge: Challenge,
    *,
    should_stop: StopPredicate,
    may_register: bool = False,
) -> None:
    """Run the provider's flow up to the request selected by `should_stop`.

    POST requests before it are only sent if the provider `may_register`. Raises AuthorizationFailed.
    """
    request = httpx2.Request(
        "POST", provider.context.server_url, headers={MCP_PROTOCOL_VERSION_HEADER: LATEST_PROTOCOL_VERSION}
    )

    flow = provider.async_auth_flow(request)
    try:
        await anext(flow)
        response = challenge.to_response(request)
        while True:
            outbound = await flow.asend(response)
            if should_stop(outbound):
                return
            if outbound.method == "POST" and not may_register:
                raise AuthorizationFailed(
                    "The server names an authorization server other than the one that CLIENT_ID belongs to"
                )
            response = await http_client.send(outbound)
            if outbound.method == "POST":
                await _check_registration(response)
    except OAuthFlowError:
        # The SDK's text quotes data of other servers.
        raise AuthorizationFailed("The metadata of the authorization server is inconsistent") from None
    except (ValueError, TypeError, StopAsyncIteration):
        raise AuthorizationFailed("The metadata of the authorization server is invalid") from None
    finally:
        await flow.aclose()


def get_configured_client(auth: ClientAuth, redirect_uri: str | None) -> OAuthClientInformationFull | None:
    """Return the client from the settings; None if they configure no client."""
    if auth.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        redirect_uris=None if redirect_uri is None else [AnyUrl(redirect_uri)],
        token_endpoint_auth_method=CLIENT_AUTH_METHODS[auth.client_auth] if auth.client_secret else "none",
        issuer=auth.issuer,
    )


def check_metadata(metadata: OAuthMetadata | None, issuer: str | None) -> None:
    """Check the metadata of an authorization server.

    Raises AuthorizationFailed unless it announces PKCE, which binds codes to their requester, and matches the
    configured issuer.
    """
    if issuer is not None and (metadata is None or not issuers_match(str(metadata.issuer), issuer)):
        raise AuthorizationFailed("The server names an authorization server other than ISSUER")
    if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise AuthorizationFailed("The authorization server does not announce support of PKCE (S256)")


def choose_authorization_server(advertised: Sequence[str], issuer: str | None) -> str:
    """Return the configured authorization server if the server advertises it.

    Returns the first one otherwise.
    """
    return next(
        (candidate for candidate in advertised if issuer is not None and issuers_match(candidate, issuer)),
        advertised[0],
    )


def get_issuer(context: OAuthContext) -> str:
    """Return the issuer of the tokens.

    Without metadata the issuer is the server itself, as in early revisions.
    """
    if context.oauth_metadata is not None:
        return str(context.oauth_metadata.issuer)
    return context.get_authorization_base_url(context.server_url)


def validate_scopes(scopes: str | None) -> str | None:
    """Return the scopes sent by another server if they are valid; otherwise None."""
    if not scopes or len(scopes) > MAX_SCOPES_LENGTH or not _SCOPES.fullmatch(scopes):
        return None
    return scopes


def merge_scopes(*scopes: str | None) -> str | None:
    """Merge several lists of scopes without duplicates."""
    merged: str | None = None
    for some in scopes:
        merged = union_scopes(merged, some)
    return merged


def choose_scopes(auth: ClientAuth, challenge: Challenge, *missing_scopes: str | None) -> Challenge:
    """Return the challenge with the scopes to request.

    These are the configured scopes, or else those of the challenge, and scopes that earlier calls lacked. Without any,
    the SDK uses the scopes of the metadata.
    """
    scopes = merge_scopes(" ".join(auth.scopes) or challenge.scopes, *missing_scopes)
    return Challenge(resource_metadata=challenge.resource_metadata, scopes=validate_scopes(scopes))


def _set_auth_method(context: OAuthContext) -> None:
    """Set the authentication method that a registration omits (RFC 7591, section 2)."""
    client, metadata = context.client_info, context.oauth_metadata
    if client is None or client.client_secret is None or client.token_endpoint_auth_method is not None:
        return
    known = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
    basic, post = CLIENT_AUTH_METHODS["basic"], CLIENT_AUTH_METHODS["post"]
    client.token_endpoint_auth_method = post if known and post in known and basic not in known else basic


async def _check_registration(response: httpx2.Response) -> None:
    """Check the registration response here, because the SDK logs invalid ones."""
    if response.status_code not in (200, 201):
        raise AuthorizationFailed(
            f"The authorization server refuses client registration ({response.status_code}); set CLIENT_ID"
        )
    try:
        check_registration_usable(await handle_registration_response(response))
    except OAuthFlowError:
        raise AuthorizationFailed("The authorization server sent an unusable registration") from None


def _get_error(response: httpx2.Response) -> str | None:
    return extract_field_from_www_auth(response, "error")
