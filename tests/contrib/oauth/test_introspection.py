"""Introspection (RFC 7662) and revocation (RFC 7009) of tokens."""

import base64
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model
from mcp_django.models import ScopeGrant
from tests.support.savepoints import rolled_back

from . import oauth_flow
from .oauth_flow import RESOURCE, create_client, create_user, find_token_row, obtain_tokens, post, read_json, refresh

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]
PATH = "/o/introspect/"


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


def basic(application: Any, secret: str) -> dict[str, str]:
    shown = base64.b64encode(f"{application.client_id}:{secret}".encode()).decode()
    return {"HTTP_AUTHORIZATION": f"Basic {shown}"}


@pytest.fixture
def operator() -> tuple[Any, str]:
    return clients.create_client("resource server")


def test_a_resource_server_can_introspect_a_token(operator: tuple[Any, str]) -> None:
    app, user = create_client(), create_user()
    tokens = obtain_tokens(app, user)
    found = read_json(post(PATH, {"token": tokens["access_token"]}, **basic(*operator)))
    assert found["active"] is True
    assert found["aud"] == [RESOURCE]
    assert found["scope"] == "notes:read"
    assert (found["client_id"], found["username"], found["sub"]) == (app.client_id, "alice", str(user.pk))
    assert found["iss"] == "https://testserver"
    assert found["exp"] - found["iat"] == pytest.approx(900, abs=2)


def test_scopes_lost_by_the_user_are_not_listed(operator: tuple[Any, str]) -> None:
    token = obtain_tokens(create_client(), create_user(), scopes="notes:read notes:write")["access_token"]
    ScopeGrant.objects.create(scope="notes:write", groups=["editors"])
    assert read_json(post(PATH, {"token": token}, **basic(*operator)))["scope"] == "notes:read"


def test_other_values_are_inactive(operator: tuple[Any, str]) -> None:
    app, user = create_client(), create_user()
    tokens = obtain_tokens(app, user)
    for token in (tokens["refresh_token"], "unknown", "x" * 8000):
        assert read_json(post(PATH, {"token": token}, **basic(*operator))) == {"active": False}
    get_access_token_model().objects.update(expires=timezone.now())
    assert read_json(post(PATH, {"token": tokens["access_token"]}, **basic(*operator))) == {"active": False}


def test_a_refused_token_is_inactive(operator: tuple[Any, str], subtests: pytest.Subtests) -> None:
    for what in ("user", "client", "audience"):
        with subtests.test(what=what), rolled_back():
            app, user = create_client(), create_user()
            token = obtain_tokens(app, user)["access_token"]
            if what == "user":
                user.is_active = False
                user.save()
            elif what == "client":
                ClientProfile.objects.filter(application=app).update(blocked=True)
            else:
                get_access_token_model().objects.update(resource=[])
            assert read_json(post(PATH, {"token": token}, **basic(*operator))) == {"active": False}


def test_a_limited_resource_server_introspects_its_own_resources_only() -> None:
    own, secret = clients.create_client("own", resources=[RESOURCE + "/"])
    other, other_secret = clients.create_client("other", resources=["https://other.example/mcp"])
    token = obtain_tokens(create_client(), create_user())["access_token"]
    assert read_json(post(PATH, {"token": token}, **basic(own, secret)))["active"] is True
    assert read_json(post(PATH, {"token": token}, **basic(other, other_secret))) == {"active": False}


def test_scopes_withdrawn_from_the_client_are_not_listed(operator: tuple[Any, str]) -> None:
    app = create_client()
    token = obtain_tokens(app, create_user(), scopes="notes:read notes:write")["access_token"]
    ClientProfile.objects.filter(application=app).update(allowed_scopes=["notes:write"])
    assert read_json(post(PATH, {"token": token}, **basic(*operator)))["scope"] == "notes:write"
    ClientProfile.objects.filter(application=app).update(allowed_resources=["https://other.example/mcp"])
    assert read_json(post(PATH, {"token": token}, **basic(*operator))) == {"active": False}


def test_other_clients_may_not_introspect(operator: tuple[Any, str]) -> None:
    app = create_client()
    token = obtain_tokens(app, create_user())["access_token"]
    registered, secret = clients.create_client("registered", redirect_uris=[oauth_flow.REDIRECT], confidential=True)
    registered.registration_source = "dcr"
    registered.save()
    made, made_secret = clients.create_client("made by a user")
    made.user = create_user("bob")
    made.save()
    device = "urn:ietf:params:oauth:grant-type:device_code"
    asks: list[tuple[dict[str, str], dict[str, str]]] = [
        ({}, {}),
        ({"client_id": app.client_id}, {}),
        ({"client_id": app.client_id, "grant_type": device}, {}),
        ({"client_id": app.client_id, "client_secret": "x", "grant_type": device}, {}),
        ({"grant_type": device}, basic(app, "x")),
        ({"client_id": operator[0].client_id}, {}),
        ({}, basic(operator[0], "wrong")),
        ({}, basic(registered, secret)),
        ({}, basic(made, made_secret)),
        ({}, {"HTTP_AUTHORIZATION": f"Bearer {token}"}),
    ]
    for form, headers in asks:
        response = post(PATH, {**form, "token": token}, **headers)
        assert read_json(response, 401)["error"] == "invalid_client"
        assert response["WWW-Authenticate"].startswith("Basic")


def test_introspection_by_get_is_refused(operator: tuple[Any, str]) -> None:
    token = obtain_tokens(create_client(), create_user())["access_token"]
    response = Client().get(PATH, {"token": token}, secure=True, **basic(*operator))
    assert response.status_code == 405
    assert response["Allow"] == "POST, OPTIONS"
    assert read_json(post(f"{PATH}?token={token}", {}, **basic(*operator)), 400)["error"] == "invalid_request"


def revoke(application: Any, token: str, **form: Any) -> int:
    return post("/o/revoke_token/", {"client_id": application.client_id, "token": token, **form}).status_code


def test_a_client_can_revoke_its_tokens(subtests: pytest.Subtests) -> None:
    for hint in ("access_token", "refresh_token", "other", None):
        with subtests.test(hint=hint), rolled_back():
            app, user = create_client(), create_user()
            more = {"token_type_hint": hint} if hint else {}
            tokens = obtain_tokens(app, user)
            assert revoke(app, tokens["access_token"], **more) == 200
            assert find_token_row(tokens["access_token"]) is None
            assert read_json(refresh(app, tokens["refresh_token"]), 400)["error"] == "invalid_grant"


def test_revoking_a_refresh_token_revokes_its_authorization() -> None:
    app, user = create_client(), create_user()
    first = obtain_tokens(app, user)
    siblings = [read_json(refresh(app, first["refresh_token"])) for _ in range(2)]
    apart = obtain_tokens(app, user)
    assert revoke(app, siblings[0]["refresh_token"]) == 200
    for each in (first, *siblings):
        assert find_token_row(each["access_token"]) is None
        assert read_json(refresh(app, each["refresh_token"]), 400)["error"] == "invalid_grant"
    assert find_token_row(apart["access_token"]) is not None


def test_a_client_revokes_its_own_tokens_only() -> None:
    app, user = create_client(), create_user()
    tokens = obtain_tokens(app, user)
    for name in ("access_token", "refresh_token"):
        assert revoke(create_client(f"other {name}"), tokens[name]) == 200
        assert revoke(app, "unknown") == 200
    assert find_token_row(tokens["access_token"]) is not None
    read_json(refresh(app, tokens["refresh_token"]))
    assert post("/o/revoke_token/", {"token": tokens["access_token"]}).status_code == 401
