"""The admin of service accounts: creation, rights of operators, sections, and the end of an account."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone
from oauth2_provider.models import AccessToken

from mcp_django.contrib.control_room.models import UsageRollup
from mcp_django.models import PersonalAccessToken, ScopeGrant, ServiceAccount, ToolPolicy
from mcp_django.models.service_account import save_account

pytestmark = pytest.mark.django_db
PREFIX = "admin:mcp_django_serviceaccount"
TOKEN = re.compile(r"mcp_pat_\w{8}_\w{46}")
MANAGER = ("view_serviceaccount", "add_serviceaccount", "change_serviceaccount", "delete_serviceaccount")


def log_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def find_permission(codename: str) -> Permission:
    return Permission.objects.get(codename=codename)


@pytest.fixture
def superuser() -> User:
    return User.objects.create_superuser("superuser")


@pytest.fixture
def clerk() -> User:
    """An operator who manages accounts and tokens, with one right of the shop and one group."""
    clerk = User.objects.create_user("clerk", is_staff=True)
    codenames = (*MANAGER, "view_personalaccesstoken", "add_personalaccesstoken", "view_product")
    clerk.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    clerk.groups.add(Group.objects.create(name="Clerks"))
    return clerk


def create_account(name: str, owner: User | None, *codenames: str, **fields: Any) -> ServiceAccount:
    account = ServiceAccount(owner=owner)
    save_account(account, User(username=name, **fields))
    account.user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return account


def issue(account: ServiceAccount, days: int | None = 30, **options: Any) -> PersonalAccessToken:
    expires = None if days is None else timezone.now() + timedelta(days=days)
    return PersonalAccessToken.issue(user=account.user, name="deploy key", expires=expires, **options)[0]


def url(name: str, account: ServiceAccount | None = None) -> str:
    return reverse(f"{PREFIX}_{name}", args=[] if account is None else [account.pk])


def test_an_operator_creates_an_account_and_its_token(clerk: User) -> None:
    browser = log_in(clerk)
    data = {"user_username": "ci", "user_email": "ci@example.com", "owner": clerk.pk, "description": "Jenkins"}
    groups = list(clerk.groups.values_list("pk", flat=True))
    rights = {"groups": groups, "user_permissions": [find_permission("view_product").pk]}
    response = browser.post(url("add"), data | rights, follow=True)
    assert response.status_code == 200
    account = ServiceAccount.objects.get()
    assert (account.user.username, account.user.email, account.owner) == ("ci", "ci@example.com", clerk)
    assert not account.can_log_in
    assert account.user.has_perm("shop.view_product")
    assert account.user.groups.count() == 1

    page = browser.get(url("change", account)).content.decode()
    new_token = f"{reverse('admin:mcp_django_personalaccesstoken_add')}?user={account.user.pk}"
    assert f'href="{new_token}"' in page
    later = timezone.now() + timedelta(days=9)
    form = {"user": account.user.pk, "name": "key", "expires_at_0": f"{later:%Y-%m-%d}", "expires_at_1": "12:00"}
    shown = browser.post(new_token, form).content.decode()
    assert TOKEN.search(shown)
    assert f'<a href="{url("change", account)}">Back to the account ci</a>' in shown
    assert PersonalAccessToken.objects.get().user == account.user
    assert list(LogEntry.objects.filter(user=clerk).values_list("content_type__model", "action_flag")) == [
        ("personalaccesstoken", 1),
        ("serviceaccount", 1),
    ]


def test_an_account_gets_no_right_that_its_operator_lacks(clerk: User, superuser: User) -> None:
    browser, buyers = log_in(clerk), Group.objects.create(name="Buyers")
    base = {"user_username": "ci", "owner": clerk.pk}
    for rights in ({"user_permissions": [find_permission("delete_product").pk]}, {"groups": [buyers.pk]}):
        errors = browser.post(url("add"), base | rights).context["adminform"].form.errors
        assert errors.keys() == rights.keys()
    assert not ServiceAccount.objects.exists()
    browser = log_in(superuser)
    browser.post(url("add"), base | {"groups": [buyers.pk]})
    assert list(ServiceAccount.objects.get().user.groups.all()) == [buyers]


def test_a_required_field_gives_no_right_that_the_operator_lacks(clerk: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(User, "REQUIRED_FIELDS", ["is_superuser"])
    browser, data = log_in(clerk), {"user_username": "ci", "owner": clerk.pk}
    assert browser.post(url("add"), data | {"user_is_superuser": "on"}).status_code == 403
    assert not User.objects.filter(username="ci").exists()
    browser.post(url("add"), data)
    assert User.objects.filter(username="ci").exists()


def test_a_stronger_account_is_only_shown_and_disabled(clerk: User) -> None:
    strong = create_account("strong", clerk, "delete_product")
    token = issue(strong)
    browser = log_in(clerk)
    page = browser.get(url("change", strong)).content.decode()
    assert 'name="_save"' not in page
    assert "New token" not in page
    assert browser.post(url("change", strong), {"owner": clerk.pk}).status_code == 403
    assert browser.post(url("delete", strong), {"post": "yes"}).status_code == 403
    form = {"user": strong.user.pk, "name": "x"}
    response = browser.post(reverse("admin:mcp_django_personalaccesstoken_add"), form)
    assert "rights that you lack" in str(response.context["adminform"].form.errors["user"])

    browser.post(url("disable", strong))
    assert not User.objects.get(username="strong").is_active
    assert browser.post(url("enable", strong)).status_code == 403
    browser.post(url("revoke", strong))
    token.refresh_from_db()
    assert not token.is_usable


def test_only_superusers_create_tokens_of_persons(clerk: User) -> None:
    person = User.objects.create_user("person")
    form = {"user": person.pk, "name": "x"}
    response = log_in(clerk).post(reverse("admin:mcp_django_personalaccesstoken_add"), form)
    assert response.context["adminform"].form.errors.keys() == {"user"}


def test_rights_owner_and_description_are_changed_and_logged(clerk: User) -> None:
    account = create_account("ci", clerk, "view_product")
    browser = log_in(clerk)
    other = User.objects.create_user("other")
    rights: dict[str, Any] = {"groups": [], "user_permissions": []}
    browser.post(url("change", account), {"owner": other.pk, "description": "New"} | rights)
    account.refresh_from_db()
    assert (account.owner, account.description) == (other, "New")
    assert not account.user.get_all_permissions()
    assert "user permissions" in LogEntry.objects.latest("pk").get_change_message()
    inactive = User.objects.create_user("gone", is_active=False)
    for owner, message in ((inactive.pk, "not active"), (account.user.pk, "choose a person")):
        response = browser.post(url("change", account), {"owner": owner})
        assert message in str(response.context["adminform"].form.errors["owner"])


def test_an_account_is_disabled_and_enabled_with_a_log_entry(superuser: User) -> None:
    account = create_account("ci", superuser)
    issue(account)
    browser = log_in(superuser)
    assert url("enable", account) not in browser.get(url("change", account)).content.decode()
    page = browser.post(url("disable", account), follow=True).content.decode()
    assert "so its tokens are refused" in page
    assert "New token" not in page
    assert url("disable", account) not in page
    browser.post(url("enable", account))
    assert User.objects.get(username="ci").is_active
    browser.post(url("changelist"), {"action": "disable_accounts", "_selected_action": [account.pk]})
    assert not User.objects.get(username="ci").is_active
    texts = [entry.change_message for entry in LogEntry.objects.order_by("pk")]
    assert texts == ["The account was disabled.", "The account was enabled.", "The account was disabled."]


def test_deletion_shows_what_it_removes_and_needs_no_permission_for_the_user(clerk: User, superuser: User) -> None:
    account = create_account("ci", clerk)
    issue(account)
    browser = log_in(clerk)
    page = browser.get(url("delete", account)).content.decode()
    assert "deploy key" in page
    browser.post(url("delete", account), {"post": "yes"})
    assert not User.objects.filter(username="ci").exists()
    assert LogEntry.objects.latest("pk").is_deletion()
    response = log_in(superuser).get(url("changelist"))
    assert "delete_selected" not in response.content.decode()


@override_settings(MCP={"RATES": {"PRINCIPAL": "90/m"}})
def test_the_page_shows_tokens_grants_policies_and_calls(superuser: User) -> None:
    account = create_account("ci", superuser)
    issue(account, 3, scopes=["books:read"])
    ScopeGrant.objects.create(scope="books:write", users=[str(superuser.pk)])
    ToolPolicy.objects.create(tool="book_*", groups=["Planners"], rate="5/m")
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    usage = {"server": "default", "method": "tools/call", "principal": "p", "milliseconds_sum": 1.0}
    UsageRollup.objects.create(start=hour, name="find_book", user_key=str(account.user.pk), count=7, failed=2, **usage)

    page = log_in(superuser).get(url("change", account)).content.decode()
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "deploy key usable in 2 days" in text or "deploy key usable in 3 days" in text
    assert '<td class="mcp-warning">in ' in page
    assert "books:read all Revoke token" in text
    assert "books:write no yes" in text
    assert "book_* all hidden, because it is in none of these groups: Planners; rate: 5/m" in text
    assert "90/m at most" in text
    assert re.search(r"find_book</a></th><td>default</td><td>7</td><td[^>]*>2</td>", page)
    access = reverse("admin:mcp_django_access_changelist")
    assert f"{access}?server=default&amp;users=ci" in page


def test_sections_need_the_permissions_of_their_own_pages(superuser: User) -> None:
    account = create_account("ci", superuser)
    issue(account)
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(find_permission("view_serviceaccount"))
    page = log_in(viewer).get(url("change", account)).content.decode()
    assert "deploy key" not in page
    assert "mcp-section" not in page


def test_the_list_shows_required_actions(superuser: User) -> None:
    kept, lost, idle = (
        create_account(name, owner) for name, owner in (("kept", superuser), ("lost", superuser), ("idle", superuser))
    )
    issue(kept, 90)
    issue(lost, 3)
    issue(lost, -1)
    PersonalAccessToken.objects.filter(user=lost.user).update(last_used_at=timezone.now() - timedelta(hours=2))
    ServiceAccount.objects.filter(pk=lost.pk).update(owner=None)
    User.objects.filter(username="idle").update(is_active=False)
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    usage = {"server": "default", "method": "tools/call", "name": "x", "failed": 0, "milliseconds_sum": 1.0}
    for age, count in ((0, 7), (30, 100)):
        start = hour - timedelta(hours=age)
        UsageRollup.objects.create(start=start, principal="p", user_key=str(lost.user.pk), count=count, **usage)

    browser = log_in(superuser)
    page = browser.get(url("changelist")).content.decode()
    row = next(part for part in page.split("<tr>") if ">lost<" in part)
    assert "without an owner" in row
    assert "1, the next expires in" in row
    assert "2\xa0hours ago" in row
    assert '<td class="field-calls">7</td>' in row
    for state, found in (
        ("enabled", {kept, lost}),
        ("disabled", {idle}),
        ("ownerless", {lost}),
        ("expiring", {lost}),
        ("tokenless", {idle}),
    ):
        assert set(browser.get(url("changelist"), {"state": state}).context["cl"].result_list) == found
    assert list(browser.get(url("changelist"), {"q": "idl"}).context["cl"].result_list) == [idle]


def test_rows_of_other_apps_need_their_own_permission_to_be_deleted(clerk: User) -> None:
    account = create_account("ci", clerk)
    AccessToken.objects.create(user=account.user, token="x", scope="", expires=timezone.now())
    browser = log_in(clerk)
    assert "access token" in browser.get(url("delete", account)).content.decode()
    assert browser.post(url("delete", account), {"post": "yes"}).status_code == 403
    assert ServiceAccount.objects.exists()
