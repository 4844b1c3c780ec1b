from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import override_settings

from mcp_django.models import PersonalAccessToken, ServiceAccount
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def owner() -> Any:
    return User.objects.create_user("ada")


def create(*arguments: str) -> tuple[str, str]:
    """Return the output of the command: stdout and stderr."""
    out, err = StringIO(), StringIO()
    call_command("mcp_createaccount", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@override_settings(MCP={"AUTH": "token", "SCOPES": {"books:read": "Read"}})
def test_the_account_and_its_token_are_created(owner: User) -> None:
    planners = Group.objects.create(name="Planners")
    options = ["--description", "GitHub Actions", "--group", "Planners", "--permission", "shop.view_product"]
    out, err = create("ci", "--owner", "ada", *options, "--field", "email=ci@example.com", "--scope", "books:read")
    account = ServiceAccount.objects.get()
    token = PersonalAccessToken.objects.get(token_hash=PersonalAccessToken.hash(out.removesuffix("\n")))
    assert (account.owner, account.description, account.user.email) == (owner, "GitHub Actions", "ci@example.com")
    assert (token.user, token.name, token.scopes) == (account.user, "first token", ["books:read"])
    assert token.expires_at is not None
    assert not account.user.has_usable_password()
    assert list(account.user.groups.all()) == [planners]
    assert account.user.has_perm("shop.view_product")
    assert out.strip() not in err


def test_an_account_can_be_created_without_a_token() -> None:
    assert create("ci", "--owner", "ada", "--no-token")[0] == ""
    assert ServiceAccount.objects.exists()
    assert not PersonalAccessToken.objects.exists()


def test_invalid_arguments_create_nothing(subtests: pytest.Subtests) -> None:
    cases = (
        (["ada", "--owner", "ada"], "already exists"),
        (["a b", "--owner", "ada"], "username: Enter a valid username"),
        (["ci"], "--owner"),
        (["ci", "--owner", "zoe"], "Unknown user 'zoe'"),
        (["ci", "--owner", "ada", "--group", "x"], "Unknown group 'x'"),
        (["ci", "--owner", "ada", "--permission", "shop.x"], "Unknown permission 'shop.x'"),
        (["ci", "--owner", "ada", "--field", "email"], "has no value"),
        (["ci", "--owner", "ada", "--field", "size=1"], "no field 'size'"),
        (["ci", "--owner", "ada", "--days", "0"], "between 1 and 36500"),
        (["ci", "--owner", "ada", "--scope", "two words"], "not a scope"),
    )
    for arguments, message in cases:
        with subtests.test(arguments=arguments), rolled_back():
            with pytest.raises(CommandError, match=message):
                create(*arguments)
            assert not ServiceAccount.objects.exists()
            assert User.objects.count() == 1


@override_settings(MCP={"MAX_TOKEN_DAYS": 7})
def test_the_default_lifetime_is_within_the_limit() -> None:
    create("ci", "--owner", "ada")
    with pytest.raises(CommandError, match="7 days at most"):
        create("cd", "--owner", "ada", "--never-expires")
