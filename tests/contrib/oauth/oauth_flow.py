"""A client, a user, and the requests of a client to the token endpoint."""

import base64
import hashlib
import json
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.http import HttpResponse
from django.test import Client as Browser

from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_oauthlib_core

RESOURCE = "https://testserver/mcp"
REDIRECT = "https://app.example/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
SETTINGS: dict[str, Any] = {
    "AUTH": ["oauth", "token"],
    "SCOPES": {"notes:read": "Read notes", "notes:write": "Write notes"},
    "RATES": {"TOKEN_FAILURES": "1000/m"},
}


def create_user(name: str = "alice", **fields: Any) -> Any:
    """Create a user without a password."""
    return get_user_model().objects.create(username=name, **fields)


def create_client(name: str = "app", *, registered: bool = True, **fields: Any) -> Any:
    """Make a public client with one redirect URI. `registered`: it registered itself, and no operator approved it."""
    application, _secret = clients.create_client(name, redirect_uris=[REDIRECT], **fields)
    if registered:
        application.registration_source = application.RegistrationSource.DCR
        application.save()
        ClientProfile.objects.filter(application=application).update(source="registered", approved=False)
    return application


def issue_code(application: Any, user: Any, *, scopes: str = "notes:read", resources: list[str] | None = None) -> str:
    """Issue an authorization code, as if the user had just allowed it."""
    credentials = {
        "client_id": application.client_id,
        "redirect_uri": REDIRECT,
        "response_type": "code",
        "state": "s",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "user": user,
        "resource": [RESOURCE] if resources is None else resources,
    }
    headers, _body, status = get_oauthlib_core().server.create_authorization_response(
        "https://testserver/o/authorize/", scopes=scopes.split(), credentials=credentials
    )
    assert status == 302
    location: str = headers["Location"]
    assert "code=" in location, location
    return location.partition("code=")[2].partition("&")[0]


def post(path: str, form: dict[str, Any] | str, **headers: Any) -> HttpResponse:
    """Post a form over https."""
    data = form if isinstance(form, str) else urlencode(form, doseq=True)
    kind = headers.pop("content_type", "application/x-www-form-urlencoded")
    return Browser(raise_request_exception=True).post(path, data=data, content_type=kind, secure=True, **headers)


def exchange(application: Any, given: str, **changes: Any) -> HttpResponse:
    """Exchange a code for tokens. `changes` replace fields of the form; None leaves one out."""
    form = {
        "grant_type": "authorization_code",
        "code": given,
        "redirect_uri": REDIRECT,
        "client_id": application.client_id,
        "code_verifier": VERIFIER,
        **changes,
    }
    return post("/o/token/", {name: value for name, value in form.items() if value is not None})


def refresh(application: Any, token: str, **changes: Any) -> HttpResponse:
    """Use a refresh token. `changes` replace fields of the form; None leaves one out."""
    form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": application.client_id, **changes}
    return post("/o/token/", {name: value for name, value in form.items() if value is not None})


def read_json(response: HttpResponse, status: int = 200) -> dict[str, Any]:
    """Read the JSON object of a response with this status."""
    assert response.status_code == status, response.content
    found: dict[str, Any] = json.loads(response.content)
    return found


def obtain_tokens(application: Any, user: Any, **options: Any) -> dict[str, Any]:
    """Exchange a new code for tokens."""
    return read_json(exchange(application, issue_code(application, user, **options)))


def find_token_row(token: str) -> Any:
    """Find the row of an access token; None without one."""
    return get_access_token_model().objects.filter(token_checksum=hashlib.sha256(token.encode()).hexdigest()).first()
