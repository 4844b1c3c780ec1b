"""The token endpoint: codes for tokens."""

import base64
import json
from typing import Any

import pytest
from django.utils import timezone

from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.models import ClientProfile, Consent, UsedCode
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_grant_model, get_refresh_token_model
from tests.contrib.oauth import oauth_flow
from tests.contrib.oauth.oauth_flow import (
    RESOURCE,
    create_client,
    create_user,
    exchange,
    find_token_row,
    issue_code,
    obtain_tokens,
    post,
    read_json,
    refresh,
)
from tests.support.savepoints import rolled_back

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


def test_a_code_gives_a_pair_for_the_resource() -> None:
    app, user = create_client(), create_user()
    found = read_json(exchange(app, issue_code(app, user, scopes="notes:read notes:write")))
    assert found["token_type"] == "Bearer"
    assert found["expires_in"] == 900
    assert found["scope"] == "notes:read notes:write"
    assert find_token_row(found["access_token"]).resource == [RESOURCE]
    assert find_token_row(found["access_token"]).user == user


def test_tokens_and_codes_are_stored_hashed() -> None:
    app, user = create_client(), create_user()
    given = issue_code(app, user)
    assert not get_grant_model().objects.filter(code=given).exists()
    found = read_json(exchange(app, given))
    assert find_token_row(found["access_token"]).token == ""
    assert get_refresh_token_model().objects.get().token == ""


def test_responses_are_json_and_not_cached() -> None:
    app = create_client()
    for response in (exchange(app, issue_code(app, create_user())), exchange(app, "wrong"), post("/o/token/", {})):
        assert response["Content-Type"] == "application/json"
        assert response["Cache-Control"] == "no-store"
        assert response["Access-Control-Allow-Origin"] == "*"
        json.loads(response.content)


MISUSES: list[tuple[dict[str, Any], str]] = [
    ({"code_verifier": "w" * 64}, "invalid_grant"),
    ({"code_verifier": None}, "invalid_request"),
    ({"code_verifier": ""}, "invalid_grant"),
    ({"redirect_uri": "https://app.example/other"}, "invalid_request"),
    ({"code": "another"}, "invalid_grant"),
    ({"code": None}, "invalid_request"),
    ({"grant_type": None}, "invalid_request"),
    ({"grant_type": "password", "username": "alice", "password": "x"}, "unsupported_grant_type"),
    ({"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": "x"}, "unsupported_grant_type"),
    ({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "unsupported_grant_type"),
    ({"grant_type": "client_credentials"}, "unauthorized_client"),
    ({"resource": "https://other.example/mcp"}, "invalid_target"),
    ({"resource": [RESOURCE, "https://other.example/mcp"]}, "invalid_target"),
    ({"resource": RESOURCE + "/deeper"}, "invalid_target"),
    ({"resource": "https://testserver"}, "invalid_target"),
]


def test_a_code_is_valid_only_for_the_request_that_it_was_issued_for(subtests: pytest.Subtests) -> None:
    for changes, error in MISUSES:
        with subtests.test(changes=changes), rolled_back():
            app = create_client()
            response = exchange(app, issue_code(app, create_user()), **changes)
            assert response.status_code in (400, 401), response.content
            found = json.loads(response.content)
            assert found["error"] == error
            assert not get_access_token_model().objects.exists()


def test_a_code_of_another_client_is_refused() -> None:
    app, user = create_client(), create_user()
    assert read_json(exchange(create_client("other"), issue_code(app, user)), 400)["error"] == "invalid_grant"


def test_a_resource_may_be_spelled_in_several_ways(subtests: pytest.Subtests) -> None:
    for spelling in (RESOURCE + "/", "HTTPS://TestServer/mcp", "https://testserver:443/mcp"):
        with subtests.test(spelling=spelling), rolled_back():
            app, user = create_client(), create_user()
            first = read_json(exchange(app, issue_code(app, user, resources=[spelling]), resource=RESOURCE))
            assert find_token_row(first["access_token"]).resource == [RESOURCE]
            second = read_json(exchange(app, issue_code(app, user), resource=[spelling, spelling]))
            assert find_token_row(second["access_token"]).resource == [RESOURCE]


def test_the_default_resource_is_the_only_one() -> None:
    app, user = create_client(), create_user()
    found = read_json(exchange(app, issue_code(app, user, resources=[])))
    assert find_token_row(found["access_token"]).resource == [RESOURCE]


def test_a_reused_code_revokes_its_tokens() -> None:
    app, user = create_client(), create_user()
    given = issue_code(app, user)
    first = read_json(exchange(app, given))
    later = read_json(refresh(app, first["refresh_token"]))
    assert read_json(exchange(app, given), 400)["error"] == "invalid_grant"
    for token in (first, later):
        assert find_token_row(token["access_token"]) is None
    assert read_json(refresh(app, later["refresh_token"]), 400)["error"] == "invalid_grant"


def test_a_used_code_from_another_client_revokes_nothing() -> None:
    app, user = create_client(), create_user()
    given = issue_code(app, user)
    first = read_json(exchange(app, given))
    read_json(exchange(create_client("other"), given), 400)
    assert find_token_row(first["access_token"]) is not None


def test_an_expired_code_gives_nothing() -> None:
    app = create_client()
    given = issue_code(app, create_user())
    get_grant_model().objects.update(expires=timezone.now())
    assert read_json(exchange(app, given), 400)["error"] == "invalid_grant"
    assert not UsedCode.objects.exists()


def test_a_deactivated_user_gets_no_token() -> None:
    app, user = create_client(), create_user()
    given, tokens = issue_code(app, user), obtain_tokens(app, user)
    user.is_active = False
    user.save()
    assert read_json(exchange(app, given), 400)["error"] == "invalid_grant"
    assert read_json(refresh(app, tokens["refresh_token"]), 400)["error"] == "invalid_grant"


def test_a_blocked_client_gets_no_token() -> None:
    app, user = create_client(), create_user()
    given, tokens = issue_code(app, user), obtain_tokens(app, user)
    ClientProfile.objects.filter(application=app).update(blocked=True)
    assert read_json(exchange(app, given), 401)["error"] == "invalid_client"
    assert read_json(refresh(app, tokens["refresh_token"]), 401)["error"] == "invalid_client"


def test_a_client_whose_access_was_withdrawn_gets_no_token() -> None:
    app, user = create_client(), create_user()
    Consent.objects.create(user=user, application=app, resource=RESOURCE, redirects_hash="")
    given, tokens = issue_code(app, user), obtain_tokens(app, user)
    revocation.withdraw_access(user, app)
    assert find_token_row(tokens["access_token"]) is None
    assert read_json(exchange(app, given), 400)["error"] == "invalid_grant"
    assert read_json(refresh(app, tokens["refresh_token"]), 400)["error"] == "invalid_grant"


def test_a_consent_that_is_revoked_ends_refreshing() -> None:
    app, user = create_client(), create_user()
    consent = Consent.objects.create(user=user, application=app, resource=RESOURCE, redirects_hash="")
    tokens = obtain_tokens(app, user)
    consent.revoked = timezone.now()
    consent.save()
    assert read_json(refresh(app, tokens["refresh_token"]), 400)["error"] == "invalid_grant"
    assert find_token_row(tokens["access_token"]) is None


def test_a_limited_client_gets_no_other_scopes_or_resources() -> None:
    app, user = create_client(), create_user()
    ClientProfile.objects.filter(application=app).update(allowed_scopes=["notes:read"])
    app.refresh_from_db()
    assert obtain_tokens(app, user, scopes="notes:read notes:write")["scope"] == "notes:read"
    ClientProfile.objects.filter(application=app).update(allowed_resources=["https://elsewhere.example/mcp"])
    assert read_json(exchange(app, "x"), 400)["error"] == "invalid_grant"


def basic(client_id: str, secret: str) -> dict[str, str]:
    return {"HTTP_AUTHORIZATION": "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()}


def test_a_confidential_client_authenticates_by_exactly_one_method() -> None:
    app, secret = clients.create_client("app", redirect_uris=[oauth_flow.REDIRECT], confidential=True)
    user = create_user()
    form = {
        "grant_type": "authorization_code",
        "redirect_uri": oauth_flow.REDIRECT,
        "code_verifier": oauth_flow.VERIFIER,
    }
    read_json(post("/o/token/", {**form, "code": issue_code(app, user)}, **basic(app.client_id, secret)))
    read_json(exchange(app, issue_code(app, user), client_secret=secret))
    given = issue_code(app, user)
    assert read_json(exchange(app, given), 401)["error"] == "invalid_client"
    assert read_json(exchange(app, given, client_secret="wrong"), 401)["error"] == "invalid_client"
    refused = post("/o/token/", {**form, "code": given}, **basic(app.client_id, "wrong"))
    assert read_json(refused, 401)["error"] == "invalid_client"
    assert refused["WWW-Authenticate"].startswith(("Basic", "Bearer"))
    both = {**form, "code": given, "client_secret": secret, "client_id": app.client_id}
    assert read_json(post("/o/token/", both, **basic(app.client_id, secret)), 401)["error"] == "invalid_client"


def test_a_trusted_client_acts_for_its_service_user() -> None:
    robot = create_user("robot")
    app, secret = clients.create_client("robot", service_user=robot)
    form = {"grant_type": "client_credentials", "scope": "notes:read", "client_id": app.client_id}
    found = read_json(post("/o/token/", {**form, "client_secret": secret}))
    assert find_token_row(found["access_token"]).user == robot
    assert find_token_row(found["access_token"]).resource == [RESOURCE]
    assert "refresh_token" not in found
    robot.is_active = False
    robot.save()
    assert read_json(post("/o/token/", {**form, "client_secret": secret}), 400)["error"] == "unauthorized_client"


def test_client_credentials_require_a_trusted_manual_client() -> None:
    app, secret = clients.create_client("robot", service_user=create_user("robot"))
    form = {"grant_type": "client_credentials", "client_id": app.client_id, "client_secret": secret}
    profiles = ClientProfile.objects.filter(application=app)
    for change in ({"trusted": False}, {"trusted": True, "source": "registered"}):
        profiles.update(**change)
        assert read_json(post("/o/token/", form), 400)["error"] == "unauthorized_client"
    profiles.update(source="manual")
    read_json(post("/o/token/", form))
    app.registration_source = "dcr"
    app.save()
    assert read_json(post("/o/token/", form), 400)["error"] == "unauthorized_client"
