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
from mcp_django.client.oauth.crypto import Unreadable, digest, open_sealed, seal
from mcp_django.client.oauth.discovery import Memory, discover, probe, scopes_to_ask
from mcp_django.client.oauth.http import AuthorizationFailed, Outgoing, web_url
from mcp_django.client.oauth.token_store import Grant, TokenRow, in_thread
from mcp_django.conf.clients import ClientSettings
from mcp_django.models import ClientFlow, ClientToken

LASTS: Final = 600
"""Seconds for which a flow is valid."""
MOST_FLOWS: Final = 8
"""Maximum number of open flows for one user. A further flow deletes the oldest."""
MOST_PARAMETER: Final = 4096
FLOW = "flow"
ERRORS: Final = frozenset(
    {"access_denied", "invalid_request", "invalid_scope", "invalid_target", "server_error", "temporarily_unavailable"}
    | {"unauthorized_client", "unsupported_response_type"}
)


class Denied(AuthorizationFailed):
    """The person declined the authorization."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Pending:
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

    def context(self, settings: ClientSettings) -> OAuthContext:
        """Build the context that functions of the SDK expect."""
        client = OAuthClientInformationFull.model_validate(self.client)
        metadata = OAuthClientMetadata(redirect_uris=client.redirect_uris, scope=self.scope)
        context = OAuthContext(web_url(settings.url or ""), metadata, Memory(client), None, None, client_info=client)
        if self.metadata is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(self.metadata)
        if self.resource is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(self.resource)
        return context


async def prepare(
    settings: ClientSettings, owner: Any, redirect_uri: str, *, outgoing: Outgoing, native: bool = False
) -> tuple[str, Pending]:
    """Return the authorization URL for the person, and the state to keep.

    `is_native` is True if the redirect leads to a program on the person's machine. Raises AuthorizationFailed.
    """
    assert settings.auth is not None
    shared = TokenRow(settings)
    held = await in_thread(TokenRow(settings, owner).read)
    more = (held.grant.scope if held.grant else None, held.wanted) if held is not None and held.wanted else ()
    challenge = scopes_to_ask(settings.auth, await probe(settings, outgoing), *more)
    kept = None if native else await in_thread(shared.registration)
    context, new = await discover(
        settings,
        outgoing,
        challenge=challenge,
        redirect_uri=redirect_uri,
        known=_usable(kept, redirect_uri),
        native=native,
    )

    if new is not None and not native and new.client_id != settings.auth.client_metadata_url:
        await in_thread(shared.register, new.model_dump(mode="json", exclude_none=True))
    return _request(context, outgoing, redirect_uri)


async def finish(settings: ClientSettings, pending: Pending, answer: Mapping[str, str], *, outgoing: Outgoing) -> Grant:
    """Exchange an authorization response for tokens.

    The caller has already verified its `state`. Raises AuthorizationFailed, and UserDeclined if the person declined.
    """
    if any(len(value) > MOST_PARAMETER for value in answer.values()):
        raise AuthorizationFailed("The response of the authorization server is too long")
    context = pending.context(settings)
    try:
        # Check the issuer first: even an error may come from another server (RFC 9207, section 2.4).
        validate_authorization_response_iss(answer.get("iss"), context.oauth_metadata)
    except OAuthFlowError:
        raise AuthorizationFailed("The response comes from another authorization server") from None
    if error := answer.get("error"):
        if error == "access_denied":
            raise Denied("The authorization was declined")
        raise AuthorizationFailed(f"The authorization server refused ({error if error in ERRORS else 'unknown error'})")

    code = answer.get("code")
    if not code:
        raise AuthorizationFailed("The response of the authorization server lacks a code")
    return await token_endpoint.exchange(
        context,
        outgoing,
        code=code,
        verifier=pending.verifier,
        redirect_uri=pending.redirect_uri,
        scope=pending.scope,
    )


async def begin(
    settings: ClientSettings,
    person: Any,
    *,
    browser: str,
    redirect_uri: str,
    back: str = "",
    outgoing: Outgoing | None = None,
) -> str:
    """Start a flow and return the URL to redirect the user to.

    The authorization is for the user, or for the project where AUTH is not per user. `browser_secret` is a secret from
    the user's session. `return_url` is the page to open afterwards. Raises AuthorizationFailed.
    """
    outgoing = outgoing or Outgoing(settings.url or "")
    url, pending = await prepare(settings, owner_of(settings, person), redirect_uri, outgoing=outgoing)
    await in_thread(_remember, settings, person, browser, pending, back)
    return url


async def complete(
    settings: ClientSettings,
    person: Any,
    *,
    browser: str,
    answer: Mapping[str, str],
    outgoing: Outgoing | None = None,
) -> str:
    """Finish a flow with the parameters of the redirect, and return its `return_url`.

    Raises AuthorizationFailed.
    """
    outgoing = outgoing or Outgoing(settings.url or "")
    pending, back = await in_thread(_recall, settings, person, browser, answer.get("state", ""))
    row = TokenRow(settings, owner_of(settings, person))
    try:
        grant = await finish(settings, pending, answer, outgoing=outgoing)
    except token_endpoint.GrantLost as problem:
        if problem.error == "invalid_client" and settings.auth is not None and settings.auth.client_id is None:
            await in_thread(TokenRow(settings).unregister, str(pending.client.get("client_id")))
        raise AuthorizationFailed("The authorization server rejects its own code; try again") from None
    await in_thread(row.write, grant)
    return back


async def disconnect(settings: ClientSettings, owner: Any, *, outgoing: Outgoing | None = None) -> bool:
    """Delete the tokens of `owner` and revoke them at the authorization server.

    Returns False if they were not revoked; they then stay valid until they expire.
    """
    grant = await in_thread(_delete, settings, owner)
    if grant is None:
        return True
    url = settings.url or ""
    return await token_endpoint.revoke(grant, outgoing or Outgoing(url), web_url(url), settings.auth)


def owner_of(settings: ClientSettings, person: Any) -> Any:
    """Return the owner of tokens that `user` authorizes: None for the project."""
    return person if settings.per_user else None


def _usable(kept: dict[str, Any] | None, redirect_uri: str) -> OAuthClientInformationFull | None:
    """Parse a stored registration; None if it has expired or lacks the redirect URI."""
    if kept is None:
        return None
    try:
        client = OAuthClientInformationFull.model_validate(kept)
    except ValueError:
        return None
    ends = client.client_secret_expires_at
    known = redirect_uri in map(str, client.redirect_uris or ())
    return client if known and not (ends and ends < time.time()) else None


def _request(context: OAuthContext, outgoing: Outgoing, redirect_uri: str) -> tuple[str, Pending]:
    metadata, client = context.oauth_metadata, context.client_info
    assert client is not None
    base = context.get_authorization_base_url(context.server_url)
    endpoint = f"{base}/authorize" if metadata is None else str(metadata.authorization_endpoint)
    outgoing.check(endpoint)
    outgoing.check(token_endpoint.token_endpoint(context))

    pkce, state, scope = PKCEParameters.generate(), secrets.token_urlsafe(32), context.client_metadata.scope
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": pkce.code_challenge,
        "code_challenge_method": "S256",
        "resource": context.get_resource_url(),
    }
    if scope:
        asked["scope"] = scope
        if "offline_access" in scope.split():
            asked["prompt"] = "consent"  # OpenID Connect Core, section 11

    parts = urlsplit(endpoint)
    query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in asked]
    resource = context.protected_resource_metadata
    pending = Pending(
        state=state,
        verifier=pkce.code_verifier,
        redirect_uri=redirect_uri,
        scope=scope,
        client=client.model_dump(mode="json", exclude_none=True),
        metadata=None if metadata is None else metadata.model_dump(mode="json", exclude_none=True),
        resource=None if resource is None else resource.model_dump(mode="json", exclude_none=True),
    )
    return urlunsplit(parts._replace(query=urlencode([*query, *asked.items()]), fragment="")), pending


def _remember(settings: ClientSettings, person: Any, browser: str, pending: Pending, back: str) -> None:
    now, state = timezone.now(), digest(pending.state)
    ClientFlow.objects.filter(expires_at__lt=now).delete()
    begun = ClientFlow.objects.filter(user=person).order_by("-pk").values_list("pk", flat=True)
    ClientFlow.objects.filter(pk__in=list(begun[MOST_FLOWS - 1 :])).delete()
    content = json.dumps({"pending": asdict(pending), "back": back}).encode()
    ClientFlow.objects.create(
        state_hash=state,
        alias=settings.alias,
        user=person,
        browser_hash=digest(browser),
        sealed=seal(content, _binding(settings, person, state), purpose=FLOW),
        expires_at=now + timedelta(seconds=LASTS),
    )


def _recall(settings: ClientSettings, person: Any, browser: str, state: str) -> tuple[Pending, str]:
    hashed = digest(state)
    rows = ClientFlow.objects.filter(
        state_hash=hashed,
        alias=settings.alias,
        user=person,
        browser_hash=digest(browser),
        expires_at__gt=timezone.now(),
    )
    row = rows.first()
    # Only the process that deletes the row may use it, so a flow is finished only once.
    if row is None or not browser or not rows.delete()[0]:
        raise AuthorizationFailed("No authorization with this state is open in this browser; try again")

    try:
        found = json.loads(open_sealed(row.sealed, _binding(settings, person, hashed), purpose=FLOW).data)
        return Pending(**found["pending"]), found["back"]
    except (Unreadable, TypeError, KeyError):
        raise AuthorizationFailed("The authorization was started before the site changed; try again") from None


def _binding(settings: ClientSettings, person: Any, state: str) -> tuple[str, ...]:
    return settings.alias, settings.url or "", str(person.pk), state


def _delete(settings: ClientSettings, owner: Any) -> Grant | None:
    grant = TokenRow(settings, owner).delete()
    # Includes rows for former URLs of the server.
    ClientToken.objects.filter(alias=settings.alias, user=owner).delete()
    return grant
