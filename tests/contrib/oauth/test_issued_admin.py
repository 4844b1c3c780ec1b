"""Codes and tokens in the admin of the toolkit."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_grant_model, get_refresh_token_model
from tests.support.savepoints import rolled_back

from . import oauth_flow
from .oauth_flow import create_client as make_client
from .oauth_flow import create_user, issue_code, obtain_tokens

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]
MODELS = {"accesstoken": get_access_token_model, "refreshtoken": get_refresh_token_model, "grant": get_grant_model}


@pytest.fixture
def browser(client: Client, settings: Any) -> Client:
    """The browser of a user with all permissions for codes and tokens, and no others."""
    settings.MCP = oauth_flow.SETTINGS
    carla = create_user("carla", is_staff=True)
    carla.user_permissions.set(Permission.objects.filter(content_type__app_label="oauth2_provider"))
    client.force_login(carla)
    app = make_client()
    obtain_tokens(app, carla)
    issue_code(app, carla)
    return client


def test_the_user_of_a_token_cannot_be_changed(browser: Client, subtests: pytest.Subtests) -> None:
    for name in sorted(MODELS):
        with subtests.test(name=name), rolled_back():
            boss = create_user("boss", is_superuser=True)
            row = MODELS[name]().objects.get()
            page = reverse(f"admin:oauth2_provider_{name}_change", args=[row.pk])
            assert browser.get(page).status_code == 200
            assert browser.post(page, {"user": boss.pk}).status_code == 403
            assert MODELS[name]().objects.get().user.username == "carla"


def test_tokens_are_revoked_in_the_admin(browser: Client) -> None:
    data = {"action": "revoke_tokens", "_selected_action": [get_access_token_model().objects.get().pk]}
    browser.post(reverse("admin:oauth2_provider_accesstoken_changelist"), data)
    assert not get_access_token_model().objects.exists()
