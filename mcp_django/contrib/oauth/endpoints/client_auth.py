"""Client authentication at endpoints."""

from typing import Any

from django.http import HttpRequest

from mcp_django.contrib.oauth.endpoints.endpoint import Refusal
from mcp_django.contrib.oauth.tokens import credentials


def shown_by(request: HttpRequest) -> credentials.Shown:
    """Return the client credentials in a request.

    Raises:
        EndpointError: no credentials, or malformed ones.
    """
    try:
        found = credentials.shown(request.META.get("HTTP_AUTHORIZATION"), request.POST)
    except credentials.Malformed as problem:
        raise Refusal("invalid_client", str(problem), status=401) from None
    if found is None:
        raise Refusal("invalid_client", "client_id is missing", status=401)
    return found


def authenticated(request: HttpRequest) -> Any:
    """Return the application of the calling client. A public client only sends its id.

    Raises:
        EndpointError: an unknown client or wrong credentials.
    """
    application = credentials.authenticated(shown_by(request))
    if application is None:
        raise Refusal("invalid_client", "The client is unknown, or its credentials are wrong", status=401)
    return application
