"""`/o/revoke_token/`: a client gives a token back (RFC 7009)."""

from django.http import HttpRequest, HttpResponse

from .. import revoking
from .callers import authenticated
from .guard import Refusal, endpoint


@endpoint()
def revoke(request: HttpRequest) -> HttpResponse:
    """200 for whatever token: whether there was one is nobody's business (section 2.2)."""
    application = authenticated(request)
    token = request.POST.get("token")
    if not token:
        raise Refusal("invalid_request", "Say which token")
    revoking.end_token(token, application)
    return HttpResponse(status=200)
