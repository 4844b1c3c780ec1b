"""Revocation endpoint (`/o/revoke_token/`, RFC 7009): clients revoke their tokens."""

from django.http import HttpRequest, HttpResponse

from mcp_django.contrib.oauth.endpoints.client_auth import authenticate_client
from mcp_django.contrib.oauth.endpoints.endpoint import EndpointError, endpoint
from mcp_django.contrib.oauth.flows import revocation


@endpoint()
def revoke(request: HttpRequest) -> HttpResponse:
    """Revoke a token. Unknown tokens get status 200 too (section 2.2)."""
    application = authenticate_client(request)
    token = request.POST.get("token")
    if not token:
        raise EndpointError("invalid_request", "The parameter token is missing")
    revocation.revoke_token(token, application)
    return HttpResponse(status=200)
