from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import override_settings
from django.utils import timezone

from mcp_django.models import PersonalAccessToken, ScopeGrant
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def user() -> Any:
    return get_user_model()._default_manager.create_user("ada")


def create(*arguments: str) -> tuple[str, str]:
    """Run the command. Return its stdout and stderr."""
    out, err = StringIO(), StringIO()
    call_command("mcp_createtoken", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_stdout_has_the_token_and_nothing_else(user: Any) -> None:
    out, err = create("ada", "--name", "ci", "--scope", "books:read", "--scope", "books:write", "--server", "default")
    token = out.removesuffix("\n")
    row = PersonalAccessToken.objects.get(token_hash=PersonalAccessToken.hash(token))
    assert PersonalAccessToken.is_well_formed(token)
    assert (row.user, row.name, row.scopes, row.audience) == (user, "ci", ["books:read", "books:write"], "default")
    assert token not in err
    assert "ci" in err


def test_a_token_expires_after_ninety_days_by_default() -> None:
    create("ada")
    create("ada", "--days", "7")
    week, quarter = PersonalAccessToken.objects.order_by("expires_at").values_list("expires_at", flat=True)
    assert week is not None
    assert quarter is not None
    assert abs(week - timezone.now() - timedelta(days=7)) < timedelta(hours=1)
    assert abs(quarter - timezone.now() - timedelta(days=90)) < timedelta(hours=1)


def test_a_token_can_be_permanent() -> None:
    _, err = create("ada", "--never-expires")
    assert PersonalAccessToken.objects.get().expires_at is None
    assert "never" in err


def test_invalid_arguments_create_no_token(subtests: pytest.Subtests) -> None:
    cases = (
        (["nobody"], "Unknown user 'nobody'"),
        (["ada", "--server", "shop"], "use one of: default"),
        (["ada", "--days", "0"], "between 1 and 36500"),
        (["ada", "--days", "3", "--never-expires"], "not allowed with"),
        (["ada", "--scope", "two words"], "not a scope"),
        ([], "username"),
    )
    for arguments, message in cases:
        with subtests.test(arguments=arguments, message=message), rolled_back():
            with pytest.raises(CommandError, match=message):
                create(*arguments)
            assert not PersonalAccessToken.objects.exists()


def test_an_inactive_user_gets_no_token(user: Any) -> None:
    user.is_active = False
    user.save()
    with pytest.raises(CommandError, match="not active"):
        create("ada")


@override_settings(MCP={"SERVERS": {"default": {}, "staff": {}}})
def test_a_token_can_be_for_any_server_of_the_project() -> None:
    create("ada", "--server", "staff")
    assert PersonalAccessToken.objects.get().audience == "staff"


SCOPED: dict[str, Any] = {
    "AUTH": "token",
    "SCOPES": {"orders:read": "Read orders", "orders:all": "All"},
    "SCOPE_IMPLIES": {"orders:all": ["orders:read"]},
    "SERVERS": {
        "default": {"REQUIRED_SCOPES": ["orders:read"]},
        "staff": {"REQUIRED_SCOPES": ["orders:read", "orders:all"]},
    },
}


@override_settings(MCP=SCOPED)
def test_a_token_has_the_scopes_required_by_its_servers_by_default() -> None:
    for arguments, scopes in (
        ([], ["orders:all", "orders:read"]),
        (["--server", "default"], ["orders:read"]),
        (["--scope", "orders:all"], ["orders:all"]),
    ):
        _, err = create("ada", *arguments)
        assert PersonalAccessToken.objects.latest("pk").scopes == scopes
        assert "can do nothing" not in err


@override_settings(MCP={**SCOPED, "SCOPES": {**SCOPED["SCOPES"], "other": "Other"}})
def test_a_token_without_any_rights_comes_with_a_warning() -> None:
    out, err = create("ada", "--scope", "other")
    assert PersonalAccessToken.is_well_formed(out.strip())
    assert "Warning: The token can do nothing: it lacks orders:read" in err
    assert "default" in err


@override_settings(MCP={"AUTH": "oauth"})
def test_a_token_that_no_verifier_accepts_comes_with_a_warning() -> None:
    assert 'MCP["AUTH"] does not contain "token"' in create("ada")[1]


@override_settings(MCP=SCOPED)
def test_an_undeclared_scope_creates_no_token() -> None:
    with pytest.raises(CommandError, match=r"does not declare order:read. Use: orders:read, orders:all"):
        create("ada", "--scope", "order:read")
    assert not PersonalAccessToken.objects.exists()


@override_settings(MCP=SCOPED)
def test_a_scope_reserved_by_a_grant_creates_no_token() -> None:
    ScopeGrant.objects.create(scope="orders:all", tokens=False)
    with pytest.raises(CommandError, match="reserves orders:all"):
        create("ada", "--scope", "orders:all")
