"""Session authentication: the user, the allowed pages and the scopes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from mcp_django.auth.authentication.session import SessionAuthenticator
from mcp_django.models import PersonalAccessToken

SECRET = "a" * 32
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "page", "version": "1"}},
}
SETTINGS: dict[str, Any] = {"AUTH": ["session", "token"], "SESSION_SCOPES": ["mcp:read"]}


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    with override_settings(MCP=SETTINGS):
        yield


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def page(user: User) -> Client:
    """The browser of a user with a login."""
    client = Client(headers={"host": "testserver"})
    client.force_login(user)
    client.cookies["csrftoken"] = SECRET
    return client


def post(page: Client, *, kind: str = "application/json", path: str = "/mcp", **headers: str) -> Any:
    sent = {"accept": "application/json, text/event-stream", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return page.post(path, json.dumps(INITIALIZE), content_type=kind, headers=sent)


def challenge(reply: Any) -> str:
    return reply.headers.get("WWW-Authenticate", "")


def test_a_page_of_the_site_is_the_user_of_the_session(page: Client) -> None:
    assert post(page, x_csrftoken=SECRET).status_code == 200
    assert post(page, x_csrftoken=SECRET, origin="http://testserver").status_code == 200


def test_a_session_has_a_fixed_set_of_scopes(page: Client, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    principal = SessionAuthenticator.authenticate

    async def noted(self: SessionAuthenticator, request: Any) -> Any:
        seen.append(await principal(self, request))
        return seen[-1]

    monkeypatch.setattr(SessionAuthenticator, "authenticate", noted)
    post(page, x_csrftoken=SECRET)
    assert (seen[0].scopes, seen[0].user, seen[0].kind) == ({"mcp:read"}, user, "session")
    assert seen[0].key == f"django|{user.pk}|session"


FOREIGN_PAGES: list[dict[str, str]] = [
    {},
    {"x_csrftoken": "b" * 32},
    {"x_csrftoken": ""},
    {"x_csrftoken": SECRET, "origin": "https://evil.example"},
    {"x_csrftoken": SECRET, "origin": "null"},
    {"x_csrftoken": SECRET, "origin": "http://localhost:3000"},
]


def test_other_pages_are_refused_without_a_challenge(page: Client, subtests: pytest.Subtests) -> None:
    for headers in FOREIGN_PAGES:
        with subtests.test(headers=headers):
            reply = post(page, **headers)
            assert reply.status_code == 403
            assert not challenge(reply)


def test_a_form_of_another_page_is_refused(page: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert post(page, kind=kind, x_csrftoken=SECRET).status_code == 415


def test_a_get_needs_no_csrf_token_but_an_allowed_origin(page: Client) -> None:
    assert page.get("/mcp", headers={"accept": "text/event-stream"}).status_code in (400, 405)
    assert page.get("/mcp", headers={"origin": "http://localhost:3000"}).status_code == 403


def test_a_delete_needs_a_csrf_token(page: Client) -> None:
    assert page.delete("/mcp").status_code == 403


def test_both_credentials_at_once_are_refused(page: Client, user: User) -> None:
    _, token = PersonalAccessToken.issue(user=user, name="one", expires=None)
    for _ in range(2):
        reply = post(page, x_csrftoken=SECRET, authorization=f"Bearer {token}")
        assert reply.status_code == 400
        assert 'error="invalid_request"' in challenge(reply)
    other = Client(headers={"host": "testserver"})
    other.cookies["theme"] = "dark"
    assert post(other, authorization=f"Bearer {token}").status_code == 200


@pytest.mark.django_db
def test_an_unknown_session_is_not_a_credential(subtests: pytest.Subtests) -> None:
    for cookie in ("", "unknown", "x" * 5000, "a\x00b", "\udc80"):
        with subtests.test(cookie=cookie):
            client = Client(headers={"host": "testserver"})
            sent = cookie.encode("utf-8", "surrogatepass").decode("latin-1")
            reply = post(client, x_csrftoken=SECRET, cookie=f"sessionid={sent}")
            assert reply.status_code == 401
            assert challenge(reply).startswith("Bearer")
            assert "error=" not in challenge(reply)


def test_a_logout_and_a_deactivation_take_effect_at_once(page: Client, user: User) -> None:
    assert post(page, x_csrftoken=SECRET).status_code == 200
    User.objects.update(is_active=False)
    assert post(page, x_csrftoken=SECRET).status_code == 401
    User.objects.update(is_active=True)
    key = page.cookies["sessionid"].value
    page.logout()
    page.cookies["sessionid"], page.cookies["csrftoken"] = key, SECRET
    assert post(page, x_csrftoken=SECRET).status_code == 401


def test_a_required_scope_that_pages_do_not_have_is_named(page: Client) -> None:
    with override_settings(MCP={**SETTINGS, "SERVERS": {"default": {"REQUIRED_SCOPES": ["mcp:more"]}}}):
        reply = post(page, x_csrftoken=SECRET)
    assert reply.status_code == 403
    assert 'error="insufficient_scope"' in challenge(reply)


def test_without_the_setting_a_session_is_not_a_credential(page: Client) -> None:
    with override_settings(MCP={"AUTH": "token"}):
        assert post(page, x_csrftoken=SECRET).status_code == 401


def test_the_token_may_be_kept_in_the_session(page: Client) -> None:
    with override_settings(CSRF_USE_SESSIONS=True):
        assert post(page, x_csrftoken=SECRET).status_code == 403
        session = page.session
        session["_csrftoken"] = SECRET
        session.save()
        assert post(page, x_csrftoken=SECRET).status_code == 200
