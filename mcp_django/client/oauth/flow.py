"""Authorization of a server by a person: authorization code flow with PKCE.

The state of a flow is stored encrypted in a row, so that any worker can finish it. It is valid once, for ten minutes,
for the user and browser that started it.
"""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.utils import timezone
from mcp.client.auth import OAuthFlowError, PKCEParameters
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import validate_authorization_response_iss
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    ProtectedResourceMetadata,
)

from mcp_django.client.oauth import token_endpoint
from mcp_django.client.oauth.crypto import hash_parts, seal, unseal
from mcp_django.client.oauth.discovery import RegistrationStorage, choose_scopes, discover, probe_server
from mcp_django.client.oauth.http import AuthorizationFailed, OAuthHTTPClient, to_http_url
from mcp_django.client.oauth.token_store import TokenGrant, TokenRow, run_in_thread
from mcp_django.conf.clients import ClientSettings
from mcp_django.crypto import UnsealError
from mcp_django.models import ClientFlow, ClientToken
from mcp_django.protocol import jsonrpc

FLOW_LIFETIME_SECONDS: Final = 600
"""Seconds for which a flow is valid."""
MAX_FLOWS_PER_USER: Final = 8
"""Maximum number of open flows for one user. A further flow deletes the oldest."""
MAX_PARAMETER_LENGTH: Final = 4096
FLOW_PURPOSE = "flow"
KNOWN_ERRORS: Final = frozenset(
    {"access_denied", "invalid_request", "invalid_scope", "invalid_target", "server_error", "temporarily_unavailable"}
    | {"unauthorized_client", "unsupported_response_type"}
)


class UserDeclined(AuthorizationFailed):
    """The person declined the authorization."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PendingAuthorization:
    """State of an authorization request, kept until its response."""

    state: str
    verifier: str
    redirect_uri: str
    scope: str | None
    client: dict[str, Any]
    metadata: dict[str, Any] | None
    """Metadata of the authorization server."""
    resource: dict[str, Any] | None
    """Metadata of the MCP server."""

    def create_context(self, settings: ClientSettings) -> OAuthContext:
        """Build the context that functions of the SDK expect."""
        client = OAuthClientInformationFull.model_validate(self.client)
        metadata = OAuthClientMetadata(redirect_uris=client.redirect_uris, scope=self.scope)
        context = OAuthContext(
            to_http_url(settings.url or ""), metadata, RegistrationStorage(client), None, None, client_info=client
        )
        if self.metadata is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(self.metadata)
        if self.resource is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(self.resource)
        return context


async def prepare_authorization(
    settings: ClientSettings, owner: Any, redirect_uri: str, *, http_client: OAuthHTTPClient, is_native: bool = False
) -> tuple[str, PendingAuthorization]:
    """Return the authorization URL for the person, and the state to keep.

    `is_native` is True if the redirect leads to a program on the person's machine. Raises AuthorizationFailed.
    """
    assert settings.auth is not None
    project_row = TokenRow(settings)
    stored = await run_in_thread(TokenRow(settings, owner).read)
    challenge = await probe_server(settings, http_client)
    if stored is not None and stored.missing_scopes:
        granted = stored.grant.scope if stored.grant else None
        challenge = choose_scopes(settings.auth, challenge, granted, stored.missing_scopes)
    else:
        challenge = choose_scopes(settings.auth, challenge)
    registration = None if is_native else await run_in_thread(project_row.read_registration)
    context, new_client = await discover(
        settings,
        http_client,
        challenge=challenge,
        redirect_uri=redirect_uri,
        known_client=_load_registration(registration, redirect_uri),
        is_native=is_native,
    )

    if new_client is not None and not is_native and new_client.client_id != settings.auth.client_metadata_url:
        await run_in_thread(project_row.save_registration, new_client.model_dump(mode="json", exclude_none=True))
    return _build_authorization_url(context, http_client, redirect_uri)


async def finish_authorization(
    settings: ClientSettings,
    pending: PendingAuthorization,
    response_params: Mapping[str, str],
    *,
    http_client: OAuthHTTPClient,
) -> TokenGrant:
    """Exchange an authorization response for tokens.

    The caller has already verified its `state`. Raises AuthorizationFailed, and UserDeclined if the person declined.
    """
    if any(len(value) > MAX_PARAMETER_LENGTH for value in response_params.values()):
        raise AuthorizationFailed("The response of the authorization server is too long")
    context = pending.create_context(settings)
    try:
        # Check the issuer first: even an error may come from another server (RFC 9207, section 2.4).
        validate_authorization_response_iss(response_params.get("iss"), context.oauth_metadata)
    except OAuthFlowError:
        raise AuthorizationFailed("The response comes from another authorization server") from None
    if error := response_params.get("error"):
        if error == "access_denied":
            raise UserDeclined("The authorization was declined")
        raise AuthorizationFailed(
            f"The authorization server refused ({error if error in KNOWN_ERRORS else 'unknown error'})"
        )

    code = response_params.get("code")
    if not code:
        raise AuthorizationFailed("The response of the authorization server lacks a code")
    data = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": pending.redirect_uri,
        "code_verifier": pending.verifier,
        "resource": context.get_resource_url(),
    }
    token = await token_endpoint.request_token(context, http_client, data)
    return token_endpoint.create_grant(context, token, scope=pending.scope)


async def begin_flow(
    settings: ClientSettings,
    user: Any,
    *,
    browser_secret: str,
    redirect_uri: str,
    return_url: str = "",
    http_client: OAuthHTTPClient | None = None,
) -> str:
    """Start a flow and return the URL to redirect the user to.

    The authorization is for the user, or for the project where AUTH is not per user. `browser_secret` is a secret from
    the user's session. `return_url` is the page to open afterwards. Raises AuthorizationFailed.
    """
    http_client = http_client or OAuthHTTPClient(settings.url or "")
    url, pending = await prepare_authorization(
        settings, get_token_owner(settings, user), redirect_uri, http_client=http_client
    )
    await run_in_thread(_save_flow, settings, user, browser_secret, pending, return_url)
    return url


async def complete_flow(
    settings: ClientSettings,
    user: Any,
    *,
    browser_secret: str,
    response_params: Mapping[str, str],
    http_client: OAuthHTTPClient | None = None,
) -> str:
    """Finish a flow with the parameters of the redirect, and return its `return_url`.

    Raises AuthorizationFailed.
    """
    http_client = http_client or OAuthHTTPClient(settings.url or "")
    pending, return_url = await run_in_thread(
        _take_flow, settings, user, browser_secret, response_params.get("state", "")
    )
    row = TokenRow(settings, get_token_owner(settings, user))
    try:
        grant = await finish_authorization(settings, pending, response_params, http_client=http_client)
    except token_endpoint.GrantLost as problem:
        if problem.error == "invalid_client" and settings.auth is not None and settings.auth.client_id is None:
            await run_in_thread(TokenRow(settings).delete_registration, str(pending.client.get("client_id")))
        raise AuthorizationFailed("The authorization server rejects its own code; try again") from None
    await run_in_thread(row.write, grant)
    return return_url


async def disconnect(settings: ClientSettings, owner: Any, *, http_client: OAuthHTTPClient | None = None) -> bool:
    """Delete the tokens of `owner` and revoke them at the authorization server.

    Returns False if they were not revoked; they then stay valid until they expire.
    """
    grant = await run_in_thread(_delete, settings, owner)
    if grant is None:
        return True
    url = settings.url or ""
    return await token_endpoint.revoke_grant(
        grant, http_client or OAuthHTTPClient(url), to_http_url(url), settings.auth
    )


def get_token_owner(settings: ClientSettings, user: Any) -> Any:
    """Return the owner of tokens that `user` authorizes: None for the project."""
    return user if settings.per_user else None


def _load_registration(registration: dict[str, Any] | None, redirect_uri: str) -> OAuthClientInformationFull | None:
    """Parse a stored registration; None if it has expired or lacks the redirect URI."""
    if registration is None:
        return None
    try:
        client = OAuthClientInformationFull.model_validate(registration)
    except ValueError:
        return None
    expires_at = client.client_secret_expires_at
    is_redirect_registered = redirect_uri in map(str, client.redirect_uris or ())
    return client if is_redirect_registered and not (expires_at and expires_at < time.time()) else None


def _build_authorization_url(
    context: OAuthContext, http_client: OAuthHTTPClient, redirect_uri: str
) -> tuple[str, PendingAuthorization]:
    metadata, client = context.oauth_metadata, context.client_info
    assert client is not None
    base = context.get_authorization_base_url(context.server_url)
    endpoint = f"{base}/authorize" if metadata is None else str(metadata.authorization_endpoint)
    http_client.check_url(endpoint)
    http_client.check_url(token_endpoint.get_token_endpoint(context))

    pkce, state, scope = PKCEParameters.generate(), secrets.token_urlsafe(32), context.client_metadata.scope
    params = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": pkce.code_challenge,
        "code_challenge_method": "S256",
        "resource": context.get_resource_url(),
    }
    if scope:
        params["scope"] = scope
        if "offline_access" in scope.split():
            params["prompt"] = "consent"  # OpenID Connect Core, section 11

    parts = urlsplit(endpoint)
    query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in params]
    resource = context.protected_resource_metadata
    pending = PendingAuthorization(
        state=state,
        verifier=pkce.code_verifier,
        redirect_uri=redirect_uri,
        scope=scope,
        client=client.model_dump(mode="json", exclude_none=True),
        metadata=None if metadata is None else metadata.model_dump(mode="json", exclude_none=True),
        resource=None if resource is None else resource.model_dump(mode="json", exclude_none=True),
    )
    return urlunsplit(parts._replace(query=urlencode([*query, *params.items()]), fragment="")), pending


def _save_flow(
    settings: ClientSettings, user: Any, browser_secret: str, pending: PendingAuthorization, return_url: str
) -> None:
    now, state = timezone.now(), hash_parts(pending.state)
    ClientFlow.objects.filter(expires_at__lt=now).delete()
    user_flows = ClientFlow.objects.filter(user=user).order_by("-pk").values_list("pk", flat=True)
    ClientFlow.objects.filter(pk__in=list(user_flows[MAX_FLOWS_PER_USER - 1 :])).delete()
    content = json.dumps({"pending": asdict(pending), "back": return_url}).encode()
    ClientFlow.objects.create(
        state_hash=state,
        alias=settings.alias,
        user=user,
        browser_hash=hash_parts(browser_secret),
        sealed=seal(content, _binding(settings, user, state), purpose=FLOW_PURPOSE),
        expires_at=now + timedelta(seconds=FLOW_LIFETIME_SECONDS),
    )


def _take_flow(
    settings: ClientSettings, user: Any, browser_secret: str, state: str
) -> tuple[PendingAuthorization, str]:
    hashed = hash_parts(state)
    rows = ClientFlow.objects.filter(
        state_hash=hashed,
        alias=settings.alias,
        user=user,
        browser_hash=hash_parts(browser_secret),
        expires_at__gt=timezone.now(),
    )
    row = rows.first()
    # Only the process that deletes the row may use it, so a flow is finished only once.
    if row is None or not browser_secret or not rows.delete()[0]:
        raise AuthorizationFailed("No authorization with this state is open in this browser; try again")

    try:
        content = jsonrpc.loads_exactly(unseal(row.sealed, _binding(settings, user, hashed), purpose=FLOW_PURPOSE).data)
        return PendingAuthorization(**content["pending"]), content["back"]
    except (UnsealError, TypeError, KeyError):
        raise AuthorizationFailed("The authorization was started before the site changed; try again") from None


def _binding(settings: ClientSettings, user: Any, state: str) -> tuple[str, ...]:
    return settings.alias, settings.url or "", str(user.pk), state


def _delete(settings: ClientSettings, owner: Any) -> TokenGrant | None:
    grant = TokenRow(settings, owner).delete()
    # Includes rows for former URLs of the server.
    ClientToken.objects.filter(alias=settings.alias, user=owner).delete()
    return grant
