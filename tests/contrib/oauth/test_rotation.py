"""Refresh tokens: each is used once, and for a moment gives siblings."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from mcp_django.contrib.oauth.models import ClientProfile, Rotation, TokenFamily, UsedCode
from mcp_django.contrib.oauth.toolkit_compat import get_refresh_token_model

from . import oauth_flow
from .oauth_flow import RESOURCE, create_client, create_user, find_token_row, obtain_tokens, read_json, refresh

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


def age(seconds: float) -> None:
    """Let time pass since tokens were superseded."""
    for state in Rotation.objects.exclude(superseded=None):
        Rotation.objects.filter(pk=state.pk).update(superseded=state.superseded - timedelta(seconds=seconds))


def assert_refused(app: Any, token: str) -> None:
    assert read_json(refresh(app, token), 400)["error"] == "invalid_grant"


def test_each_refresh_gives_a_new_pair_with_the_granted_scopes() -> None:
    app, user = create_client(), create_user()
    first = obtain_tokens(app, user, scopes="notes:read notes:write")
    second = read_json(refresh(app, first["refresh_token"]))
    assert second["refresh_token"] != first["refresh_token"]
    assert second["scope"] == "notes:read notes:write"
    assert find_token_row(second["access_token"]).resource == [RESOURCE]
    assert find_token_row(second["access_token"]).user == user


def test_a_refresh_keeps_the_previous_access_token_valid() -> None:
    app = create_client()
    first = obtain_tokens(app, create_user())
    read_json(refresh(app, first["refresh_token"]))
    assert find_token_row(first["access_token"]) is not None


def test_a_token_used_moments_ago_gives_siblings() -> None:
    app = create_client()
    first = obtain_tokens(app, create_user())["refresh_token"]
    pairs = [read_json(refresh(app, first)) for _ in range(6)]
    assert len({each["refresh_token"] for each in pairs}) == 6
    for each in pairs:
        assert find_token_row(each["access_token"]) is not None
        read_json(refresh(app, each["refresh_token"]))


def test_the_number_of_siblings_is_limited() -> None:
    app = create_client()
    first = obtain_tokens(app, create_user())["refresh_token"]
    pairs = [read_json(refresh(app, first)) for _ in range(6)]
    assert_refused(app, first)
    for each in pairs:
        assert find_token_row(each["access_token"]) is None
        assert_refused(app, each["refresh_token"])


def test_a_token_reused_after_the_grace_revokes_its_family() -> None:
    app = create_client()
    first = obtain_tokens(app, create_user())
    second = read_json(refresh(app, first["refresh_token"]))
    age(31)
    assert_refused(app, first["refresh_token"])
    assert_refused(app, second["refresh_token"])
    for each in (first, second):
        assert find_token_row(each["access_token"]) is None


def test_a_token_of_an_older_generation_revokes_its_family() -> None:
    app = create_client()
    first = obtain_tokens(app, create_user())["refresh_token"]
    second = read_json(refresh(app, first))["refresh_token"]
    third = read_json(refresh(app, second))
    assert_refused(app, first)
    assert_refused(app, third["refresh_token"])
    assert find_token_row(third["access_token"]) is None


def test_a_revoked_token_gives_no_sibling() -> None:
    app = create_client()
    tokens = obtain_tokens(app, create_user())
    form = {"token": tokens["refresh_token"], "client_id": app.client_id}
    assert oauth_flow.post("/o/revoke_token/", form).status_code == 200
    assert_refused(app, tokens["refresh_token"])
    assert find_token_row(tokens["access_token"]) is None


def test_without_grace_a_token_is_valid_once(settings: Any) -> None:
    settings.MCP = {**oauth_flow.SETTINGS, "OAUTH": {"REFRESH_GRACE": 0}}
    app = create_client()
    first = obtain_tokens(app, create_user())["refresh_token"]
    read_json(refresh(app, first))
    assert_refused(app, first)


def test_an_idle_refresh_token_expires() -> None:
    app = create_client()
    token = obtain_tokens(app, create_user())["refresh_token"]
    get_refresh_token_model().objects.update(created=timezone.now() - timedelta(days=30))
    assert_refused(app, token)


def test_another_client_gets_and_revokes_nothing() -> None:
    app = create_client()
    token = obtain_tokens(app, create_user())["refresh_token"]
    assert_refused(create_client("other"), token)
    read_json(refresh(app, token))


def test_a_refresh_may_narrow_scopes_and_not_widen_them() -> None:
    app = create_client()
    token = obtain_tokens(app, create_user(), scopes="notes:read offline_access")["refresh_token"]
    assert read_json(refresh(app, token, scope="notes:read notes:write"), 400)["error"] == "invalid_scope"
    assert read_json(refresh(app, token, resource="https://other.example/mcp"), 400)["error"] == "invalid_target"
    narrowed = read_json(refresh(app, token, scope="notes:read unheard-of"))
    assert narrowed["scope"] == "notes:read"


def test_a_refresh_gives_no_withdrawn_scope() -> None:
    app = create_client()
    token = obtain_tokens(app, create_user(), scopes="notes:read notes:write")["refresh_token"]
    ClientProfile.objects.filter(application=app).update(allowed_scopes=["notes:read"])
    assert read_json(refresh(app, token))["scope"] == "notes:read"


def test_a_deleted_access_token_is_not_issued_again() -> None:
    app = create_client()
    tokens = obtain_tokens(app, create_user())
    find_token_row(tokens["access_token"]).delete()
    assert_refused(app, tokens["refresh_token"])


def test_rows_are_deleted_with_their_tokens() -> None:
    app = create_client()
    obtain_tokens(app, create_user())
    get_refresh_token_model().objects.all().delete()
    assert not Rotation.objects.exists()
    app.delete()
    assert not TokenFamily.objects.exists()


def test_records_of_expired_tokens_are_cleared() -> None:
    app = create_client()
    token = obtain_tokens(app, create_user())["refresh_token"]
    call_command("mcp_clearclients")
    assert UsedCode.objects.count() == TokenFamily.objects.count() == 1
    read_json(refresh(app, token))
    UsedCode.objects.update(expires=timezone.now())
    TokenFamily.objects.update(rotated=timezone.now() - timedelta(days=30))
    call_command("mcp_clearclients")
    assert not UsedCode.objects.exists()
    assert not TokenFamily.objects.exists()
    assert not Rotation.objects.exists()
    assert_refused(app, token)
