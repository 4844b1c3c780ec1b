"""Endpoints for tokens: they issue, revoke and introspect them.

- `/o/token/` exchanges codes and refresh tokens for access tokens (RFC 6749, section 3.2).
- `/o/revoke_token/` lets clients revoke their tokens (RFC 7009).
- `/o/introspect/` is for resource servers that an operator created (RFC 7662). They authenticate with their client's
  secret.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse
from oauth2_provider.signals import app_authorized

from mcp_django import conf
from mcp_django.contrib.oauth.endpoints.endpoint import (
    EndpointError,
    authenticate_client,
    endpoint,
    get_parameter,
    json_response,
    read_client_credentials,
)
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.flows.server import BEARER
from mcp_django.contrib.oauth.tokens import access_tokens, credentials, resource_indicators
from mcp_django.contrib.oauth.tokens.scopes import filter_offered_scopes
from mcp_django.contrib.oauth.toolkit_compat import get_oauthlib_core
from mcp_django.extensions.calls import jsonrpc


@endpoint
def token(request: HttpRequest) -> HttpResponse:
    """Issue a token and send the toolkit's signal `app_authorized`."""
    get_parameter(request, "grant_type")
    read_client_credentials(request)
    _location, headers, body, status = get_oauthlib_core().create_token_response(request)
    members = jsonrpc.loads_exactly(body) if body else {}
    if status == 200:
        row = access_tokens.find_rows(members["access_token"]).first()
        # The token may have been revoked at the same moment; the client gets an error when it uses it.
        if row is not None:
            app_authorized.send(sender=token, request=request, token=row)

    kept = {name: value for name, value in headers.items() if name.lower() == "www-authenticate"}
    return json_response(status, kept, **members)


@endpoint
def revoke(request: HttpRequest) -> HttpResponse:
    """Revoke a token. Unknown tokens get status 200 too (section 2.2)."""
    application = authenticate_client(request)
    revocation.revoke_token(get_parameter(request, "token"), application)
    return HttpResponse(status=200)


@endpoint
def introspect(request: HttpRequest) -> HttpResponse:
    """Return the state of a token. POST only, because a token in a URL would be logged."""
    caller = authenticate_client(request)
    if not can_introspect(caller):
        raise EndpointError(
            "invalid_client", "Only resource servers created by an operator may introspect tokens", status=401
        )

    row = access_tokens.find_rows(get_parameter(request, "token")).first()
    if row is None or not access_tokens.is_usable(row):
        return json_response(active=False)
    # With `allowed_resources` the resource server sees its own resources only.
    audiences = resource_indicators.filter_allowed(caller, access_tokens.get_resources(row))
    if not audiences:
        return json_response(active=False)

    return json_response(
        active=True,
        scope=" ".join(filter_offered_scopes(row.scope, row.application, user=row.user)),
        client_id=row.application.client_id,
        username=row.user.get_username(),
        sub=str(row.user.pk),
        token_type=BEARER,
        exp=int(row.expires.timestamp()),
        iat=int(row.created.timestamp()),
        aud=audiences,
        iss=conf.issuer(),
    )


def can_introspect(application: Any) -> bool:
    """Return True for a confidential client that an operator created.

    Clients that ordinary users created are excluded. A view of the toolkit for that may be reachable.
    """
    profile = getattr(application, "mcp_profile", None)
    if profile is not None and profile.source != profile.Source.MANUAL:
        return False
    return credentials.is_operator_client(application) and credentials.is_confidential(application)
