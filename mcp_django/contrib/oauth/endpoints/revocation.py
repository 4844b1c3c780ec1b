"""`/o/revoke_token/`: a client gives a token back (RFC 7009)."""

from django.http import HttpRequest, HttpResponse

from mcp_django.contrib.oauth.endpoints.client_auth import authenticated
from mcp_django.contrib.oauth.endpoints.endpoint import Refusal, endpoint
from mcp_django.contrib.oauth.flows import revocation


@endpoint()
def revoke(request: HttpRequest) -> HttpResponse:
    """200 for whatever token: whether there was one is nobody's business (section 2.2)."""
    application = authenticated(request)
    token = request.POST.get("token")
    if not token:
        raise Refusal("invalid_request", "Say which token")
    revocation.end_token(token, application)
    return HttpResponse(status=200)
