"""Scopes that an operator reserves after a grant: at the exchange, at a refresh, and in use."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group

from mcp_django.auth.requests import AuthRequest
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model
from mcp_django.models import ScopeGrant
from mcp_django.protocol.headers import Headers
from mcp_django.wiring import create_authenticator

from . import oauth_flow
from .oauth_flow import create_client, create_user, exchange, issue_code, obtain_tokens, read_json, refresh

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]
BOTH = "notes:read notes:write"


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


def keep(scope: str) -> ScopeGrant:
    return ScopeGrant.objects.create(scope=scope, groups=["editors"])


def read_scopes(token: str) -> set[str]:
    """Return the scopes of the bearer at the endpoint."""
    asked = AuthRequest(Headers([(b"authorization", f"Bearer {token}".encode())]))
    return set(async_to_sync(create_authenticator("default").authenticate)(asked).scopes)


def test_a_token_keeps_its_other_scopes() -> None:
    user = create_user()
    token = obtain_tokens(create_client(), user, scopes=BOTH)["access_token"]
    assert read_scopes(token) == {"notes:read", "notes:write"}
    row = keep("notes:write")
    assert read_scopes(token) == {"notes:read"}
    user.groups.add(Group.objects.create(name="editors"))
    assert read_scopes(token) == {"notes:read", "notes:write"}
    user.groups.clear()
    row.delete()
    assert read_scopes(token) == {"notes:read", "notes:write"}


def test_a_refresh_keeps_the_other_scopes() -> None:
    app = create_client()
    first = obtain_tokens(app, create_user(), scopes=BOTH)
    keep("notes:write")
    found = read_json(refresh(app, first["refresh_token"]))
    assert found["scope"] == "notes:read"
    assert read_scopes(found["access_token"]) == {"notes:read"}
    assert read_json(refresh(app, found["refresh_token"], scope=BOTH), 400)["error"] == "invalid_scope"


def test_a_refresh_without_scopes_is_refused_and_keeps_the_token() -> None:
    app = create_client()
    token = obtain_tokens(app, create_user(), scopes=BOTH)["refresh_token"]
    rows = [keep("notes:read"), keep("notes:write")]
    assert read_json(refresh(app, token), 400)["error"] == "invalid_scope"
    for row in rows:
        row.delete()
    assert read_json(refresh(app, token))["scope"] == BOTH


def test_a_scope_reserved_for_other_clients_is_lost() -> None:
    app = create_client()
    token = obtain_tokens(app, create_user(), scopes=BOTH)["refresh_token"]
    ScopeGrant.objects.create(scope="notes:write", clients=["https://good.example/*"])
    assert read_json(refresh(app, token))["scope"] == "notes:read"


def test_a_code_keeps_the_other_scopes() -> None:
    app = create_client()
    given = issue_code(app, create_user(), scopes=BOTH)
    keep("notes:write")
    assert read_json(exchange(app, given))["scope"] == "notes:read"


def test_a_code_gives_the_scopes_that_the_client_may_have() -> None:
    app = create_client()
    given = issue_code(app, create_user(), scopes=BOTH)
    ClientProfile.objects.filter(application=app).update(allowed_scopes=["notes:read"])
    assert read_json(exchange(app, given))["scope"] == "notes:read"


def test_a_code_without_scopes_gives_no_token() -> None:
    app = create_client()
    given = issue_code(app, create_user(), scopes="notes:write")
    keep("notes:write")
    assert read_json(exchange(app, given), 400)["error"] == "invalid_scope"
    assert not get_access_token_model().objects.exists()
