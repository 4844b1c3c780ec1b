"""The page on which users make and revoke personal tokens."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from mcp_django.models import PersonalAccessToken, ScopeGrant
from tests.contrib.oauth.oauth_client import SCOPES
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
PAGE = "/o/tokens/"
FORM = {"action": "create", "name": "CI", "scopes": ["airports:read"], "days": "30"}


def shown(page: Any) -> str | None:
    """The token on a page."""
    found = re.search(r"mcp_pat_\w{8}_\w+", page.content.decode())
    return found[0] if found else None


def test_a_token_is_made_and_shown_once(browser: Client, ada: User) -> None:
    page = browser.post(PAGE, FORM)
    token = shown(page)
    assert page["Cache-Control"] == "no-store"
    assert token is not None
    row = PersonalAccessToken.objects.get()
    assert row.token_hash == PersonalAccessToken.hash(token)
    assert (row.user, row.name, row.scopes, row.audience) == (ada, "CI", ["airports:read"], "")
    assert timedelta(days=29) < row.expires_at - timezone.now() < timedelta(days=31)
    assert shown(browser.get(PAGE)) is None
    assert row.prefix in browser.get(PAGE).content.decode()


NOT_OFFERED: list[dict[str, Any]] = [
    {"name": ""},
    {"name": "x" * 101},
    {"name": "a\0b"},
    {"scopes": ["admin"]},
    {"scopes": ["airports:read", "offline_access"]},
    {"days": "0"},
    {"days": "100000"},
    {"days": ""},
    {"days": "9" * 400},
]


def test_a_value_that_was_not_offered_creates_no_token(browser: Client, subtests: pytest.Subtests) -> None:
    for change in NOT_OFFERED:
        with subtests.test(change=change), rolled_back():
            page = browser.post(PAGE, {**FORM, **change})
            assert page.status_code == 200
            assert 'role="alert"' in page.content.decode()
            assert not PersonalAccessToken.objects.exists()


def test_a_reserved_scope_is_not_offered(browser: Client) -> None:
    ScopeGrant.objects.create(scope="airports:write", groups=["pilots"])
    ScopeGrant.objects.create(scope="airports:read", tokens=False)
    assert 'name="scopes"' not in browser.get(PAGE).content.decode()
    browser.post(PAGE, FORM)
    assert PersonalAccessToken.objects.get().scopes == []


def test_a_token_may_be_for_one_of_several_servers(browser: Client, settings: Settings) -> None:
    assert 'name="audience"' not in browser.get(PAGE).content.decode()
    settings.MCP = settings.MCP | {"SERVERS": {"default": {}, "back": {"PATH": "back", "TITLE": "The back office"}}}
    assert "The back office" in browser.get(PAGE).content.decode()
    browser.post(PAGE, {**FORM, "audience": "back"})
    assert PersonalAccessToken.objects.get().audience == "back"
    browser.post(PAGE, {**FORM, "audience": "elsewhere"})
    assert PersonalAccessToken.objects.count() == 1


def test_the_project_limits_the_lifetime(browser: Client, settings: Settings) -> None:
    settings.MCP = settings.MCP | {"OAUTH": {"PERSONAL_TOKEN_DAYS": 14}}
    assert re.findall(r'<option value="(\d+)"', browser.get(PAGE).content.decode()) == ["7", "14"]
    browser.post(PAGE, FORM)
    assert not PersonalAccessToken.objects.exists()
    settings.MCP = settings.MCP | {"MAX_TOKEN_DAYS": 10}
    assert re.findall(r'<option value="(\d+)"', browser.get(PAGE).content.decode()) == ["7", "10"]


def test_the_page_can_be_switched_off(browser: Client, settings: Settings) -> None:
    settings.MCP = settings.MCP | {"OAUTH": {"PERSONAL_TOKENS": False}}
    assert browser.get(PAGE).status_code == 404
    assert browser.post(PAGE, FORM).status_code == 404
    assert PAGE not in browser.get("/o/connections/").content.decode()


def test_a_revoked_token_is_refused(browser: Client, ada: User) -> None:
    row, _token = PersonalAccessToken.issue(user=ada, name="Laptop", scopes=SCOPES, expires=None)
    page = browser.post(PAGE, {"action": "revoke", "token": str(row.pk)})
    row.refresh_from_db()
    assert not row.is_usable
    assert "The token “Laptop” was revoked." in page.content.decode()
    assert "Revoked" in page.content.decode()


def test_a_foreign_or_unknown_key_revokes_nothing(browser: Client, subtests: pytest.Subtests) -> None:
    for key in ("", "0", "x", "9" * 400, "1\0"):
        with subtests.test(key=key), rolled_back():
            bob = User.objects.create_user("bob")
            row, _token = PersonalAccessToken.issue(user=bob, name="Bobs", expires=None)
            for wanted in (key, str(row.pk)):
                assert browser.post(PAGE, {"action": "revoke", "token": wanted}).status_code == 200
            row.refresh_from_db()
            assert row.is_usable
            assert b"Bobs" not in browser.get(PAGE).content


def test_usable_tokens_come_first(browser: Client, ada: User) -> None:
    PersonalAccessToken.issue(user=ada, name="Usable", expires=None)
    PersonalAccessToken.issue(user=ada, name="Expired", expires=timezone.now() - timedelta(days=1))
    page = browser.get(PAGE).content.decode()
    assert page.index("Usable") < page.index("<bdi>Expired</bdi>")


def test_anonymous_users_create_no_token(site: Any, db: None) -> None:
    assert Client().post(PAGE, FORM)["Location"] == f"/accounts/login/?next={PAGE}"
    assert not PersonalAccessToken.objects.exists()


def test_a_form_of_another_site_creates_no_token(ada: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ada)
    assert browser.post(PAGE, FORM).status_code == 403
    assert not PersonalAccessToken.objects.exists()


def test_required_scopes_are_ticked_and_a_token_without_them_is_marked(browser: Client, settings: Settings) -> None:
    settings.MCP = {**settings.MCP, "SERVERS": {"default": {"REQUIRED_SCOPES": ["airports:read"]}}}
    page = browser.get(PAGE).content.decode()
    assert re.findall(r'name="scopes" value="([^"]+)"[^>]*? checked', page) == ["airports:read"]
    page = browser.post(PAGE, {**FORM, "scopes": []}).content.decode()
    assert page.count("can do nothing: it lacks airports:read") == 2
