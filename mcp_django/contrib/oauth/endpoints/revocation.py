"""Revocation endpoint (`/o/revoke_token/`, RFC 7009): clients revoke their tokens."""

from django.http import HttpRequest, HttpResponse

from mcp_django.contrib.oauth.endpoints.client_auth import authenticated
from mcp_django.contrib.oauth.endpoints.endpoint import Refusal, endpoint
from mcp_django.contrib.oauth.flows import revocation


@endpoint()
def revoke(request: HttpRequest) -> HttpResponse:
    """Revoke a token. Unknown tokens get status 200 too (section 2.2)."""
    application = authenticated(request)
    token = request.POST.get("token")
    if not token:
        raise Refusal("invalid_request", "The parameter token is missing")
    revocation.end_token(token, application)
    return HttpResponse(status=200)
