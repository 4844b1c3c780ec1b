"""Access tokens at the endpoint of the project."""

import base64
import json
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import DatabaseError
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import include, path
from django.utils import timezone
from oauth2_provider.views.dynamic_client_registration import DynamicClientRegistrationView

from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.protected.registry import metadata_url
from mcp_django.auth.resource import ProtectedResource
from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.tokens import access_tokens as bearers
from mcp_django.contrib.oauth.tokens import token_format
from mcp_django.contrib.oauth.tokens.access_tokens import verifier
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_refresh_token_model, set_token
from tests.support.savepoints import rolled_back

from . import oauth_flow
from .oauth_flow import RESOURCE, create_client, create_user, exchange, obtain_tokens, read_json, refresh

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = {**oauth_flow.SETTINGS, "TOKEN_CACHE_SECONDS": 0}


def call(token: str | None, **headers: Any) -> HttpResponse:
    if token is not None:
        headers["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    accept = "application/json, text/event-stream"
    response: HttpResponse = Client().post(
        "/mcp",
        PING,
        content_type="application/json",
        secure=True,
        HTTP_ACCEPT=accept,
        HTTP_HOST="testserver",
        **headers,
    )
    return response


def is_authenticated(token: str | None, **headers: Any) -> bool:
    """Return True if the token authenticates its bearer, with any response to the message."""
    response = call(token, **headers)
    if response.status_code == 401:
        assert response["WWW-Authenticate"].startswith("Bearer ")
        assert metadata_url(RESOURCE) in response["WWW-Authenticate"]
        return False
    assert response.status_code in (200, 400), response.content
    return True


def make(app: Any, user: Any, **fields: Any) -> str:
    """Make a row that no request creates."""
    token = token_format.access_token(None)
    values = {
        "application": app,
        "user": user,
        "scope": "notes:read",
        "expires": timezone.now() + timedelta(minutes=5),
        "resource": [RESOURCE],
    }
    row = get_access_token_model()(**{**values, **fields})
    set_token(row, token)
    row.save()
    return token


def test_a_valid_token_authenticates_its_bearer() -> None:
    app, user = create_client(), create_user()
    assert is_authenticated(obtain_tokens(app, user)["access_token"])
    assert is_authenticated(make(app, user))


OTHER_RESOURCES: list[list[str]] = [
    [],
    ["https://testserver"],
    ["https://testserver/"],
    ["https://testserver/mcp/deeper"],
    ["https://testserver/mcp2"],
    ["http://testserver/mcp"],
    ["https://testserver:8443/mcp"],
    ["https://testserver/mcp?x=1"],
    ["https://me@testserver/mcp"],
    ["https://testserver.evil.example/mcp"],
    ["https://evil.example/mcp"],
]


def test_a_token_for_another_resource_is_refused(subtests: pytest.Subtests) -> None:
    for resource in OTHER_RESOURCES:
        with subtests.test(resource=resource), rolled_back():
            assert not is_authenticated(make(create_client(), create_user(), resource=resource))


def test_an_invalid_token_is_refused() -> None:
    app, user = create_client(), create_user()
    gone = create_user("gone", is_active=False)
    assert not is_authenticated(None)
    assert not is_authenticated(token_format.access_token(None))
    assert not is_authenticated(make(app, user, expires=timezone.now()))
    assert not is_authenticated(make(app, gone))
    assert not is_authenticated(make(app, None))
    assert not is_authenticated(make(None, user))
    # Registration access tokens (RFC 7592) are in the toolkit's table of access tokens.
    assert not is_authenticated(make(app, user, scope="oauth2_provider:registration"))
    assert not is_authenticated(make(app, user, scope="notes:read oauth2_provider:registration"))


def test_other_strings_are_refused_as_access_tokens() -> None:
    app, user = create_client(), create_user()
    found = obtain_tokens(app, user)
    given = oauth_flow.issue_code(app, user)
    part = base64.urlsafe_b64encode(b'{"alg":"RS256"}').decode().rstrip("=")
    for token in (found["refresh_token"], given, f"{part}.{part}.c2ln", "eyJ.x.y", found["access_token"][:-1], "x"):
        assert not is_authenticated(token)
    # Also if one was stored as an access token by other means.
    odd = get_refresh_token_model().objects.get().access_token
    set_token(odd, found["refresh_token"])
    odd.save()
    assert not is_authenticated(found["refresh_token"])


def test_codes_and_refresh_tokens_are_refused_as_access_tokens() -> None:
    app, user = create_client(), create_user()
    given = oauth_flow.issue_code(app, user, scopes="notes:read offline_access")
    assert not is_authenticated(given)
    first = read_json(exchange(app, given))
    second = read_json(refresh(app, first["refresh_token"]))
    for token in (given, first["refresh_token"], second["refresh_token"]):
        assert not is_authenticated(token)
    assert is_authenticated(first["access_token"])
    assert is_authenticated(second["access_token"])
    read_json(refresh(app, second["refresh_token"]))  # which it was good for all the time


def test_a_registration_access_token_is_refused(settings: Any) -> None:
    everybody = "oauth2_provider.dcr.AllowAllDCRPermission"
    more = {"DCR_ENABLED": True, "DCR_REGISTRATION_PERMISSION_CLASSES": [everybody]}
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, **more}
    asked = json.dumps({"redirect_uris": [oauth_flow.REDIRECT], "token_endpoint_auth_method": "none"})
    request = RequestFactory().post("/register/", asked, content_type="application/json", secure=True)
    request.user = create_user()
    toolkits = ModuleType("urls_of_the_toolkit")
    vars(toolkits)["urlpatterns"] = [path("o/", include("oauth2_provider.urls"))]
    with override_settings(ROOT_URLCONF=toolkits):
        response = DynamicClientRegistrationView.as_view()(request)
    token = read_json(response, 201)["registration_access_token"]
    row = oauth_flow.find_token_row(token)
    assert row is not None
    assert not is_authenticated(token)
    row.resource = [RESOURCE]
    row.save()
    assert not is_authenticated(token)


def test_a_blocked_client_is_refused_at_once() -> None:
    app, user = create_client(), create_user()
    token = obtain_tokens(app, user)["access_token"]
    assert is_authenticated(token)
    ClientProfile.objects.filter(application=app).update(blocked=True)
    assert not is_authenticated(token)


def test_a_client_that_is_no_longer_trusted_is_refused() -> None:
    robot = create_user("robot")
    app, _secret = clients.create_client("robot", service_user=robot)
    token = make(app, robot)
    assert is_authenticated(token)
    assert not is_authenticated(make(app, create_user()))
    ClientProfile.objects.filter(application=app).update(trusted=False)
    assert not is_authenticated(token)
    ClientProfile.objects.filter(application=app).delete()
    assert not is_authenticated(token)


async def _principal(token: str) -> Any:
    return await verifier().verify(token, resource=ProtectedResource(server="default", uri=RESOURCE))


def test_scopes_withdrawn_from_a_client_are_lost_at_once() -> None:
    app = create_client()
    found = obtain_tokens(app, create_user(), scopes="notes:read notes:write")["access_token"]
    profile = ClientProfile.objects.get(application=app)
    profile.allowed_scopes = ["notes:read"]
    profile.save()
    assert async_to_sync(_principal)(found).scopes == {"notes:read"}
    profile.allowed_resources = ["https://elsewhere.example/mcp"]
    profile.save()
    assert not is_authenticated(found)
    profile.allowed_resources = [f"{RESOURCE}/"]
    profile.save()
    assert is_authenticated(found)


def test_every_refusal_reads_the_same() -> None:
    app, user = create_client(), create_user()
    refused = [
        call(token_format.access_token(None)),
        call(make(app, user, expires=timezone.now())),
        call(make(app, user, resource=["https://evil.example/mcp"])),
        call(make(app, create_user("gone", is_active=False))),
    ]
    assert len({(each.status_code, each["WWW-Authenticate"], each.content) for each in refused}) == 1


def test_a_token_in_the_query_or_a_cookie_is_ignored() -> None:
    token = obtain_tokens(create_client(), create_user())["access_token"]
    browser = Client()
    browser.cookies["access_token"] = token
    response = browser.post(
        f"/mcp?access_token={token}", PING, content_type="application/json", secure=True, HTTP_HOST="testserver"
    )
    assert response.status_code == 401


def test_a_token_is_verified_in_one_query(django_assert_num_queries: Any) -> None:
    token = pair_of()
    resource = ProtectedResource(server="default", uri=RESOURCE)
    with django_assert_num_queries(1):
        principal = async_to_sync(verifier().verify)(token, resource=resource)
    assert principal.user.username == "alice"
    assert principal.scopes == {"notes:read"}
    assert principal.kind == "oauth"
    assert principal.audience == RESOURCE
    assert token not in repr(principal)


def pair_of() -> str:
    token: str = obtain_tokens(create_client(), create_user())["access_token"]
    return token


async def test_a_database_that_fails_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(token: str) -> Any:
        raise DatabaseError

    monkeypatch.setattr(bearers, "find_rows", fail)
    with pytest.raises(AuthError) as raised:
        await verifier().verify(
            token_format.access_token(None), resource=ProtectedResource(server="default", uri=RESOURCE)
        )
    assert raised.value.kind == "unavailable"


async def test_without_a_known_origin_every_token_is_refused() -> None:
    with pytest.raises(AuthError) as raised:
        await verifier().verify(await sync_to_async(pair_of)(), resource=ProtectedResource(server="default"))
    assert raised.value.kind == "invalid_token"
