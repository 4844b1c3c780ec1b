"""Unsafe requests that django-oauth-toolkit alone would accept: for codes, and at views that it protects."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from oauth2_provider.views.generic import ProtectedResourceView
from oauthlib.oauth2 import OAuth2Error

from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_grant_model, get_oauthlib_core
from tests.support.savepoints import rolled_back

from . import oauth_flow
from .oauth_flow import CHALLENGE, REDIRECT, RESOURCE, create_client, create_user, find_token_row, obtain_tokens

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


def authorize(application: Any, user: Any, **changes: Any) -> dict[str, str]:
    """Return the query of the redirect to the client."""
    asked = {
        "client_id": application.client_id,
        "redirect_uri": REDIRECT,
        "response_type": "code",
        "state": "s",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "user": user,
        "resource": [RESOURCE],
    }
    asked |= changes
    credentials = {name: value for name, value in asked.items() if value is not None}
    try:
        headers, _body, _status = get_oauthlib_core().server.create_authorization_response(
            "https://testserver/o/authorize/", scopes=["notes:read"], credentials=credentials
        )
    except OAuth2Error as problem:
        return {"error": problem.error or ""}
    return {name: values[0] for name, values in parse_qs(urlsplit(headers["Location"]).query).items()}


def test_a_valid_request_gives_a_code() -> None:
    assert "code" in authorize(create_client(), create_user())


UNSAFE_REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
    ({"code_challenge_method": "plain"}, "invalid_request"),
    ({"code_challenge_method": None}, "invalid_request"),
    ({"code_challenge_method": "S512"}, "invalid_request"),
    ({"response_type": "token"}, "unsupported_response_type"),
    ({"response_type": "id_token"}, "unsupported_response_type"),
    ({"response_type": "code token"}, "unauthorized_client"),
    ({"response_type": "none"}, "unauthorized_client"),
    ({"resource": ["https://evil.example/mcp"]}, "invalid_target"),
    ({"resource": [RESOURCE, "https://evil.example/mcp"]}, "invalid_target"),
    ({"resource": ["https://testserver"]}, "invalid_target"),
    ({"resource": [RESOURCE + "#x"]}, "invalid_target"),
    ({"client_id": "nobody"}, "invalid_request"),
    ({"client_id": "a\0b"}, "invalid_request"),
    ({"redirect_uri": "https://evil.example/cb"}, "invalid_request"),
]


def test_unsafe_requests_for_codes_are_refused(subtests: pytest.Subtests) -> None:
    for changes, error in UNSAFE_REQUESTS:
        with subtests.test(changes=changes), rolled_back():
            found = authorize(create_client(), create_user(), **changes)
            assert found["error"] == error
            assert not get_grant_model().objects.exists()
            assert not get_access_token_model().objects.exists()


def test_a_deactivated_user_gives_no_code() -> None:
    assert authorize(create_client(), create_user(is_active=False))["error"] == "access_denied"


def test_a_blocked_client_gets_no_code() -> None:
    app = create_client()
    app.mcp_profile.blocked = True
    app.mcp_profile.save()
    assert authorize(app, create_user())["error"] == "invalid_request"


class Page(ProtectedResourceView):  # type: ignore[misc]
    """A page of the project."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("in")


def status(token: str, path: str = "/mcp") -> int:
    request = RequestFactory().get(path, secure=True, HTTP_AUTHORIZATION=f"Bearer {token}")
    return int(Page.as_view()(request).status_code)


def test_a_view_of_the_toolkit_accepts_valid_tokens() -> None:
    assert status(obtain_tokens(create_client(), create_user())["access_token"]) == 200


def test_a_view_of_the_toolkit_refuses_other_tokens() -> None:
    app, user = create_client(), create_user()

    def changed(**fields: Any) -> str:
        token: str = obtain_tokens(app, user)["access_token"]
        get_access_token_model().objects.filter(pk=find_token_row(token).pk).update(**fields)
        return token

    assert status(changed(resource=[])) == 403
    assert status(changed(scope="oauth2_provider:registration")) == 403
    assert status(changed(user=None)) == 403
    assert status("eyJhbGciOiJub25lIn0.e30.x") == 403
    assert status("eyJ.x.y") == 403
    good = changed()
    user.is_active = False
    user.save()
    assert status(good) == 403


def test_a_token_in_the_query_is_ignored() -> None:
    token = obtain_tokens(create_client(), create_user())["access_token"]
    request = RequestFactory().get(f"/mcp?access_token={token}", secure=True)
    assert Page.as_view()(request).status_code == 403
