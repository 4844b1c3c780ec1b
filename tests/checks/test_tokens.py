"""The checks of personal access tokens and service accounts in the database."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.checks import CheckMessage, run_checks
from django.db import connection
from pytest_django.fixtures import Settings

from mcp_django.models import PersonalAccessToken, ScopeGrant, ServiceAccount
from mcp_django.models.service_account import save_account

pytestmark = pytest.mark.django_db
SCOPED: dict[str, Any] = {
    "AUTH": "token",
    "SCOPES": {"orders:read": "Read", "orders:all": "All"},
    "SCOPE_IMPLIES": {"orders:all": ["orders:read"]},
    "SERVERS": {"default": {"REQUIRED_SCOPES": ["orders:read"]}},
}


@pytest.fixture(autouse=True)
def _scoped(settings: Settings) -> None:
    settings.MCP = SCOPED


def issue(name: str, *scopes: str, audience: str = "") -> PersonalAccessToken:
    user = get_user_model()._default_manager.get_or_create(username="ada")[0]
    return PersonalAccessToken.issue(user=user, name=name, scopes=scopes, audience=audience, expires=None)[0]


def messages(databases: tuple[str, ...] = ("default",), *, number: int = 44) -> list[CheckMessage]:
    return [one for one in run_checks(databases=databases) if one.id == f"mcp_django.W0{number}"]


def test_tokens_without_any_rights_are_listed() -> None:
    issue("good", "orders:all")
    issue("revoked").revoke()
    dead = issue("dead")
    (message,) = messages()
    assert f"1. dead ({dead.prefix}…) of ada lacks orders:read for 'default'." in message.msg
    assert "good" not in message.msg
    assert "revoked" not in message.msg


def test_a_token_that_one_server_serves_is_not_listed(settings: Settings) -> None:
    settings.MCP = {**SCOPED, "SERVERS": {**SCOPED["SERVERS"], "open": {}}}
    issue("all")
    assert messages() == []
    issue("one", audience="default")
    assert len(messages()) == 1


def test_a_required_scope_that_a_grant_reserves_is_missing() -> None:
    issue("reserved", "orders:read")
    assert messages() == []
    ScopeGrant.objects.create(scope="orders:read", groups=["staff"])
    assert len(messages()) == 1


def test_the_names_are_bounded() -> None:
    for number in range(12):
        issue(f"t{number}")
    (message,) = messages()
    assert "12. " in message.msg
    assert "and 2 more" in message.msg


def test_without_the_database_or_its_tables_nothing_is_read(
    settings: Settings, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue("dead")
    with django_assert_num_queries(0):
        assert messages(()) == []
    settings.MCP = {**SCOPED, "AUTH": "oauth"}
    assert messages() == []
    settings.MCP = SCOPED
    monkeypatch.setattr(connection.introspection, "table_names", lambda cursor: [])
    assert messages() == []


def test_accounts_without_an_owner_and_with_a_password_are_listed(settings: Settings) -> None:
    settings.MCP = {}
    owner = User.objects.create_user("owner")
    for name, account_owner in (("kept", owner), ("lost", None)):
        save_account(ServiceAccount(owner=account_owner), User(username=name))
    assert messages(number=46) == []
    (message,) = messages(number=45)
    assert message.msg.endswith("without an active owner: lost.")
    user = User.objects.get(username="kept")
    user.set_password("secret")
    user.save()
    (message,) = messages(number=46)
    assert message.msg.endswith(": kept.")
    assert messages((), number=45) == []
