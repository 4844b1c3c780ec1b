"""Token endpoint (`/o/token/`): exchanges codes and refresh tokens.

It issues access tokens (RFC 6749, section 3.2).
"""

import json

from django.http import HttpRequest, HttpResponse
from oauth2_provider.signals import app_authorized

from mcp_django.contrib.oauth.endpoints.client_auth import read_client_credentials
from mcp_django.contrib.oauth.endpoints.endpoint import EndpointError, endpoint, json_response
from mcp_django.contrib.oauth.tokens import access_tokens
from mcp_django.contrib.oauth.toolkit_compat import get_oauthlib_core


@endpoint()
def token(request: HttpRequest) -> HttpResponse:
    """Issue a token and send the toolkit's signal `app_authorized`."""
    if not request.POST.get("grant_type"):
        raise EndpointError("invalid_request", "The parameter grant_type is missing")

    read_client_credentials(request)
    _location, headers, body, status = get_oauthlib_core().create_token_response(request)
    members = json.loads(body) if body else {}
    if status == 200:
        row = access_tokens.find_rows(members["access_token"]).first()
        # The token may have been revoked at the same moment; the client gets an error when it uses it.
        if row is not None:
            app_authorized.send(sender=token, request=request, token=row)

    kept = {name: value for name, value in headers.items() if name.lower() == "www-authenticate"}
    return json_response(status, kept, **members)
