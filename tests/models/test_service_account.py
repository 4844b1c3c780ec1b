"""Service accounts: logins, owners, tokens and deletion."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection
from django.http import HttpRequest
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from mcp_django.models import PersonalAccessToken, ServiceAccount, service_account
from mcp_django.models.service_account import save_account

pytestmark = pytest.mark.django_db


def create_account(name: str = "ci", owner: User | None = None, **fields: Any) -> ServiceAccount:
    account = ServiceAccount(owner=owner or User.objects.get_or_create(username="ada")[0])
    save_account(account, User(username=name, **fields))
    return account


def issue(account: ServiceAccount, **options: Any) -> PersonalAccessToken:
    expires = timezone.now() + timedelta(days=30)
    return PersonalAccessToken.issue(**{"user": account.user, "name": "ci", "expires": expires, **options})[0]


def test_no_backend_authenticates_a_service_account() -> None:
    account = create_account(is_staff=True)
    account.user.set_password("secret")
    account.user.save()
    assert account.can_log_in
    browser = Client()
    data = {"username": "ci", "password": "secret"}
    assert browser.post(reverse("admin:login"), data).status_code == 403
    assert "_auth_user_id" not in browser.session
    assert browser.get(reverse("admin:index")).status_code == 302
    with pytest.raises(PermissionDenied):
        Client().force_login(account.user)


def test_persons_log_in_as_before() -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("boss"))
    assert browser.get(reverse("admin:index")).status_code == 200


def test_a_login_costs_one_statement_and_needs_no_migrated_table(monkeypatch: pytest.MonkeyPatch) -> None:
    boss, account = User.objects.create_superuser("boss"), create_account()
    Client().force_login(boss)
    with CaptureQueriesContext(connection) as queries:
        Client().force_login(boss)
    assert [each["sql"].count("SELECT") for each in queries if ServiceAccount._meta.db_table in each["sql"]] == [1]

    with monkeypatch.context() as patch:
        patch.setattr(service_account, "_migrated_aliases", set())
        patch.setattr(ServiceAccount._meta, "db_table", "not_migrated")
        Client().force_login(boss)
    with pytest.raises(PermissionDenied):
        Client().force_login(account.user)


def test_a_new_account_has_no_password() -> None:
    account = create_account()
    assert not account.user.has_usable_password()
    assert not account.can_log_in


@pytest.mark.parametrize("end", ["delete", "deactivate"])
def test_tokens_outlive_the_owner_and_new_ones_need_another(end: str) -> None:
    owner = User.objects.create_user("bob")
    account = create_account(owner=owner)
    token = issue(account)
    if end == "delete":
        owner.delete()
    else:
        User.objects.filter(pk=owner.pk).update(is_active=False)
    account = ServiceAccount.objects.get()
    assert not account.has_owner
    assert list(PersonalAccessToken.objects.usable()) == [token]
    with pytest.raises(ValidationError, match="no active owner"):
        issue(account)
    account.owner = User.objects.create_user("eve")
    account.save()
    issue(account)


def test_an_account_owns_no_other_account() -> None:
    account = create_account()
    with pytest.raises(ValidationError, match="choose a person"):
        ServiceAccount(user=User.objects.create_user("x"), owner=account.user).full_clean()


def test_deletion_removes_the_user_and_the_tokens() -> None:
    issue(create_account())
    create_account("cd")
    ServiceAccount.objects.get(user__username="ci").delete()
    assert not PersonalAccessToken.objects.exists()
    assert set(User.objects.values_list("username", flat=True)) == {"ada", "cd"}
    ServiceAccount.objects.all().delete()
    assert set(User.objects.values_list("username", flat=True)) == {"ada"}


@override_settings(MCP={"MAX_TOKEN_DAYS": 30})
def test_a_token_lasts_no_longer_than_the_setting_allows() -> None:
    account, now = create_account(), timezone.now()
    for expires in (None, now + timedelta(days=31)):
        with pytest.raises(ValidationError, match="30 days at most"):
            issue(account, expires=expires)
    assert issue(account, expires=now + timedelta(days=30)).is_usable


def test_a_login_without_a_session_is_refused() -> None:
    """Packages that give out tokens of their own send the signal of a login, too."""
    with pytest.raises(PermissionDenied):
        user_logged_in.send(sender=User, request=HttpRequest(), user=create_account().user)
