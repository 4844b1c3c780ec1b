"""Which client calls an endpoint."""

from typing import Any

from django.http import HttpRequest

from mcp_django.contrib.oauth.endpoints.endpoint import Refusal
from mcp_django.contrib.oauth.tokens import credentials


def shown_by(request: HttpRequest) -> credentials.Shown:
    """What the request shows of its client. Raises Refusal."""
    try:
        found = credentials.shown(request.META.get("HTTP_AUTHORIZATION"), request.POST)
    except credentials.Malformed as problem:
        raise Refusal("invalid_client", str(problem), status=401) from None
    if found is None:
        raise Refusal("invalid_client", "Say by client_id which client asks", status=401)
    return found


def authenticated(request: HttpRequest) -> Any:
    """The application of the client that calls; a public one has only said its name. Raises Refusal."""
    application = credentials.authenticated(shown_by(request))
    if application is None:
        raise Refusal("invalid_client", "The client is unknown, or its credentials are wrong", status=401)
    return application
