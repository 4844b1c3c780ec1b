"""`/o/token/`: codes and refresh tokens for access tokens (RFC 6749, section 3.2)."""

import json

from django.http import HttpRequest, HttpResponse
from oauth2_provider.signals import app_authorized

from mcp_django.contrib.oauth.endpoints.client_auth import shown_by
from mcp_django.contrib.oauth.endpoints.endpoint import Refusal, endpoint, told
from mcp_django.contrib.oauth.tokens import access_tokens
from mcp_django.contrib.oauth.toolkit_compat import get_oauthlib_core


@endpoint()
def token(request: HttpRequest) -> HttpResponse:
    """Sends the toolkit's `app_authorized` for each token."""
    if not request.POST.get("grant_type"):
        raise Refusal("invalid_request", "Say by grant_type what the token is asked for with")
    shown_by(request)
    _location, headers, body, status = get_oauthlib_core().create_token_response(request)
    members = json.loads(body) if body else {}
    if status == 200:
        row = access_tokens.rows(members["access_token"]).first()
        if row is not None:  # it is gone where it was revoked at the same moment, which the client finds out
            app_authorized.send(sender=token, request=request, token=row)
    kept = {name: value for name, value in headers.items() if name.lower() == "www-authenticate"}
    return told(status, kept, **members)
