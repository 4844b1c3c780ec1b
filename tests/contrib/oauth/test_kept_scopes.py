"""Scopes that an operator keeps for others, of a grant that was made before: at the exchange, at a refresh, in use."""

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

from . import flows
from .flows import create_client, create_user, exchange, issue_code, obtain_tokens, read_json, refresh

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]
BOTH = "notes:read notes:write"


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = flows.SETTINGS


def keep(scope: str) -> ScopeGrant:
    return ScopeGrant.objects.create(scope=scope, groups=["editors"])


def held(token: str) -> set[str]:
    """What the bearer holds at the endpoint."""
    asked = AuthRequest(Headers([(b"authorization", f"Bearer {token}".encode())]))
    return set(async_to_sync(create_authenticator("default").authenticate)(asked).scopes)


def test_a_token_is_good_for_the_rest_at_once() -> None:
    user = create_user()
    token = obtain_tokens(create_client(), user, scopes=BOTH)["access_token"]
    assert held(token) == {"notes:read", "notes:write"}
    row = keep("notes:write")
    assert held(token) == {"notes:read"}
    user.groups.add(Group.objects.create(name="editors"))
    assert held(token) == {"notes:read", "notes:write"}
    user.groups.clear()
    row.delete()
    assert held(token) == {"notes:read", "notes:write"}


def test_a_refresh_gives_the_rest() -> None:
    app = create_client()
    first = obtain_tokens(app, create_user(), scopes=BOTH)
    keep("notes:write")
    found = read_json(refresh(app, first["refresh_token"]))
    assert found["scope"] == "notes:read"
    assert held(found["access_token"]) == {"notes:read"}
    assert read_json(refresh(app, found["refresh_token"], scope=BOTH), 400)["error"] == "invalid_scope"


def test_a_refresh_that_would_give_nothing_is_refused_and_uses_nothing_up() -> None:
    app = create_client()
    token = obtain_tokens(app, create_user(), scopes=BOTH)["refresh_token"]
    rows = [keep("notes:read"), keep("notes:write")]
    assert read_json(refresh(app, token), 400)["error"] == "invalid_scope"
    for row in rows:
        row.delete()
    assert read_json(refresh(app, token))["scope"] == BOTH


def test_a_grant_for_other_clients_takes_the_scope_from_this_one() -> None:
    app = create_client()
    token = obtain_tokens(app, create_user(), scopes=BOTH)["refresh_token"]
    ScopeGrant.objects.create(scope="notes:write", clients=["https://good.example/*"])
    assert read_json(refresh(app, token))["scope"] == "notes:read"


def test_a_code_gives_the_rest() -> None:
    app = create_client()
    given = issue_code(app, create_user(), scopes=BOTH)
    keep("notes:write")
    assert read_json(exchange(app, given))["scope"] == "notes:read"


def test_a_code_gives_what_an_operator_leaves_the_client() -> None:
    app = create_client()
    given = issue_code(app, create_user(), scopes=BOTH)
    ClientProfile.objects.filter(application=app).update(allowed_scopes=["notes:read"])
    assert read_json(exchange(app, given))["scope"] == "notes:read"


def test_a_code_that_would_give_nothing_gives_no_token() -> None:
    app = create_client()
    given = issue_code(app, create_user(), scopes="notes:write")
    keep("notes:write")
    assert read_json(exchange(app, given), 400)["error"] == "invalid_scope"
    assert not get_access_token_model().objects.exists()
