"""Introspection endpoint (`/o/introspect/`, RFC 7662).

It is for resource servers that an operator created. They authenticate with their client's secret.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse

from mcp_django import conf
from mcp_django.auth.resource import canonicalize_url
from mcp_django.contrib.oauth.endpoints.client_auth import authenticate_client
from mcp_django.contrib.oauth.endpoints.endpoint import EndpointError, endpoint, json_response
from mcp_django.contrib.oauth.flows.server import BEARER
from mcp_django.contrib.oauth.tokens import access_tokens, credentials
from mcp_django.contrib.oauth.tokens.scopes import filter_offered_scopes


@endpoint()
def introspect(request: HttpRequest) -> HttpResponse:
    """Return the state of a token. POST only, because a token in a URL would be logged."""
    caller = authenticate_client(request)
    if not can_introspect(caller):
        raise EndpointError(
            "invalid_client", "Only resource servers created by an operator may introspect tokens", status=401
        )

    token = request.POST.get("token")
    if not token:
        raise EndpointError("invalid_request", "The parameter token is missing")

    row = access_tokens.find_rows(token).first()
    audiences = (
        []
        if row is None or not access_tokens.is_usable(row)
        else _filter_audiences(caller, access_tokens.get_resources(row))
    )
    if row is None or not audiences:
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
    manual = application.registration_source == application.RegistrationSource.MANUAL
    if profile is not None and profile.source != profile.Source.MANUAL:
        return False
    by_operator = application.user is None or application.user.is_staff
    return manual and by_operator and credentials.is_confidential(application)


def _filter_audiences(application: Any, resources: list[str]) -> list[str]:
    """Return the resources of a token that the resource server may see.

    With `allowed_resources` these are its own.
    """
    profile = getattr(application, "mcp_profile", None)
    if profile is None or profile.allowed_resources is None:
        return resources
    own = {canonicalize_url(one) for one in profile.allowed_resources}
    return [one for one in resources if one in own]
