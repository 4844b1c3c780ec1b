"""Client authentication at endpoints."""

from typing import Any

from django.http import HttpRequest

from mcp_django.contrib.oauth.endpoints.endpoint import EndpointError
from mcp_django.contrib.oauth.tokens import credentials


def read_client_credentials(request: HttpRequest) -> credentials.ClientCredentials:
    """Return the client credentials in a request.

    Raises:
        EndpointError: no credentials, or malformed ones.
    """
    try:
        found_credentials = credentials.read_credentials(request.META.get("HTTP_AUTHORIZATION"), request.POST)
    except credentials.MalformedCredentials as problem:
        raise EndpointError("invalid_client", str(problem), status=401) from None
    if found_credentials is None:
        raise EndpointError("invalid_client", "client_id is missing", status=401)
    return found_credentials


def authenticate_client(request: HttpRequest) -> Any:
    """Return the application of the calling client. A public client only sends its id.

    Raises:
        EndpointError: an unknown client or wrong credentials.
    """
    application = credentials.authenticate(read_client_credentials(request))
    if application is None:
        raise EndpointError("invalid_client", "The client is unknown, or its credentials are wrong", status=401)
    return application
