"""Credentials of stored work, looked at again without the token."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from mcp_django.auth.authentication.session import SESSION_KIND
from mcp_django.auth.authentication.verifiers import AuthError, build_token_principal
from mcp_django.auth.principal import DjangoPrincipal, run_in_thread
from mcp_django.auth.requests import AuthRequest
from mcp_django.models import ExternalIdentity, PersonalAccessToken, ScopeGrant
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.wiring import create_authenticator

pytestmark = pytest.mark.django_db
ISSUER = {"ISSUER": "https://id.example", "JWKS_URI": "https://id.example/keys", "AUDIENCE": "https://shop.example/mcp"}


@pytest.fixture
def token(settings: Any) -> PersonalAccessToken:
    settings.MCP = {"AUTH": ["token"]}
    user = User.objects.create_user("ada")
    expires = timezone.now() + timedelta(days=1)
    return PersonalAccessToken.issue(user=user, name="CI", scopes=["read", "write"], expires=expires)[0]


def reload(principal: DjangoPrincipal) -> DjangoPrincipal:
    return async_to_sync(create_authenticator("default").reload)(principal, run_in_thread)


def test_a_personal_token_has_its_current_scopes(token: PersonalAccessToken) -> None:
    principal = build_token_principal(token)
    assert reload(principal).scopes == {"read", "write"}
    PersonalAccessToken.objects.update(scopes=["read", "admin"])
    assert reload(principal).scopes == {"read"}
    assert reload(replace(principal, scopes=frozenset())).scopes == set()


@pytest.mark.parametrize(
    "values",
    [
        {"revoked_at": timezone.now()},
        {"expires_at": timezone.now() - timedelta(days=2)},
        {"audience": "other"},
    ],
)
def test_a_personal_token_that_has_ended_is_refused(token: PersonalAccessToken, values: dict[str, Any]) -> None:
    principal = build_token_principal(token)
    PersonalAccessToken.objects.update(**values)
    with pytest.raises(AuthError):
        reload(principal)


def test_a_deleted_personal_token_and_one_of_another_user_are_refused(token: PersonalAccessToken) -> None:
    principal = build_token_principal(token)
    with pytest.raises(AuthError):
        reload(replace(principal, subject="4711"))
    token.delete()
    with pytest.raises(AuthError):
        reload(principal)


def test_implied_scopes_are_kept_and_grants_apply(token: PersonalAccessToken, settings: Any) -> None:
    settings.MCP = {"AUTH": ["token"], "SCOPES": {"read": "Read", "all": "All"}, "SCOPE_IMPLIES": {"all": ["read"]}}
    PersonalAccessToken.objects.update(scopes=["all"])
    principal = replace(build_token_principal(token), scopes=frozenset({"all", "read"}))
    assert reload(principal).scopes == {"all", "read"}
    ScopeGrant.objects.create(scope="all", groups=["editors"])
    assert reload(principal).scopes == {"read"}


def refuse(principal: DjangoPrincipal, *, resource: Any) -> None:
    return None


def test_the_authorizer_and_the_scopes_of_every_request_apply(token: PersonalAccessToken, settings: Any) -> None:
    principal = build_token_principal(token)
    settings.MCP = {"AUTH": ["token"], "SERVERS": {"default": {"AUTHORIZER": f"{__name__}.refuse"}}}
    with pytest.raises(TransportRefusal):
        reload(principal)
    settings.MCP = {"AUTH": ["token"], "SERVERS": {"default": {"REQUIRED_SCOPES": ["write"]}}}
    assert reload(principal).scopes == {"read", "write"}
    PersonalAccessToken.objects.update(scopes=["read"])
    with pytest.raises(AuthError):
        reload(principal)


def test_a_new_password_ends_stored_work_of_sessions(settings: Any) -> None:
    settings.MCP = {"AUTH": ["session"], "SESSION_SCOPES": ["read"]}
    user = User.objects.create_user("ada", password="one")
    browser = Client()
    browser.force_login(user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"
    request = AuthRequest(Headers([(b"cookie", cookie.encode())]), method="GET")
    principal = async_to_sync(create_authenticator("default").authenticate)(request)
    browser.logout()
    assert reload(principal).scopes == {"read"}, "a logout is the end of one session only"
    user.set_password("two")
    user.save()
    with pytest.raises(AuthError):
        reload(replace(principal, user=User.objects.get()))
    assert reload(replace(principal, grant_id=None)).kind == SESSION_KIND  # stored by an earlier release


def test_an_unlinked_external_identity_is_refused(settings: Any) -> None:
    settings.MCP = {"AUTH": ["external"], "ISSUERS": [ISSUER]}
    user = User.objects.create_user("ada")
    link = ExternalIdentity.objects.create(issuer=ISSUER["ISSUER"], subject="a", user=user)
    principal = DjangoPrincipal(issuer=ISSUER["ISSUER"], subject="a", user=user, kind="external")
    assert reload(principal).key == principal.key
    link.user = User.objects.create_user("bob")
    link.save()
    with pytest.raises(AuthError):
        reload(principal)
    link.delete()
    for unknown in (principal, replace(principal, user=None), replace(principal, issuer="https://other.example")):
        with pytest.raises(AuthError):
            reload(unknown)


def test_principals_of_an_unknown_source_are_unchanged(settings: Any) -> None:
    settings.MCP = {"AUTH": ["token"]}
    principal = DjangoPrincipal(issuer="tests", subject="ada", client_id="cli", scopes=frozenset({"a"}))
    assert reload(principal) is principal
