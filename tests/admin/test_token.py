import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.contrib.sessions.models import Session as BrowserSession
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from mcp_django.models import PersonalAccessToken, ScopeGrant
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db

LIST = "admin:mcp_django_personalaccesstoken_changelist"
ADD = "admin:mcp_django_personalaccesstoken_add"
CHANGE = "admin:mcp_django_personalaccesstoken_change"
TOKEN = re.compile(r"mcp_pat_\w{8}_\w{46}")


def user(name: str, *permissions: str, **fields: Any) -> Any:
    made = get_user_model()._default_manager.create_user(name, is_staff=True, **fields)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return made


@pytest.fixture
def boss() -> Any:
    return user("boss", is_superuser=True)


@pytest.fixture
def browser(client: Client, boss: Any) -> Client:
    client.force_login(boss)
    return client


def form(of: Any, **fields: Any) -> dict[str, Any]:
    later = timezone.now() + timedelta(days=30)
    data = {"user": of.pk, "name": "ci", "scopes": "", "audience": ""}
    return data | {"expires_at_0": f"{later:%Y-%m-%d}", "expires_at_1": "12:00:00"} | fields


def test_the_token_is_shown_once_and_stored_nowhere(browser: Client, boss: Any) -> None:
    response = browser.post(reverse(ADD), form(boss, scopes="books:write, books:read"))
    assert response.status_code == 200
    [token] = set(TOKEN.findall(response.content.decode()))
    row = PersonalAccessToken.objects.get()
    assert row.token_hash == PersonalAccessToken.hash(token)
    assert (row.user, row.scopes, row.audience) == (boss, ["books:read", "books:write"], "")
    assert "no-store" in response.headers["Cache-Control"]

    later = [browser.get(reverse(name, args=args)) for name, args in ((LIST, []), (CHANGE, [row.pk]), (ADD, []))]
    kept = [page.content.decode() for page in later]
    kept += [str(entry.object_repr) + entry.change_message for entry in LogEntry.objects.all()]
    kept += [str(stored.get_decoded()) for stored in BrowserSession.objects.all()]
    kept += [cookie.OutputString() for cookie in (*response.cookies.values(), *browser.cookies.values())]
    secret = token[len(row.prefix) :]
    assert not any(secret in text or row.token_hash in text for text in kept)


def test_the_new_token_is_in_a_box_to_copy_from_below_its_list(browser: Client, boss: Any) -> None:
    form_page = browser.get(reverse(ADD)).content.decode()
    assert 'name="_save"' in form_page
    assert "_addanother" not in form_page
    assert "_continue" not in form_page
    page = browser.post(reverse(ADD), form(boss)).content.decode()
    assert re.search(r"<textarea[^>]* readonly autofocus[^>]*>mcp_pat_\w+</textarea>", page)
    assert page.index(reverse(LIST)) < page.index("<textarea")
    assert "Authorization: Bearer" in page


@override_settings(MESSAGE_STORAGE="django.contrib.messages.storage.session.SessionStorage")
def test_the_token_is_not_stored_with_messages_in_the_session_either(browser: Client, boss: Any) -> None:
    [token] = set(TOKEN.findall(browser.post(reverse(ADD), form(boss)).content.decode()))
    assert not any(token in str(stored.get_decoded()) for stored in BrowserSession.objects.all())


def test_the_form_defaults_to_the_own_user_and_ninety_days(browser: Client, boss: Any) -> None:
    initial = browser.get(reverse(ADD)).context["adminform"].form.initial
    assert initial["user"] == boss.pk
    assert abs(initial["expires_at"] - timezone.now() - timedelta(days=90)) < timedelta(hours=1)


@override_settings(MCP={"SERVERS": {"default": {}, "staff": {}}})
def test_a_token_can_be_for_one_server(browser: Client, boss: Any) -> None:
    browser.post(reverse(ADD), form(boss, audience="staff"))
    assert PersonalAccessToken.objects.get().audience == "staff"


def test_a_token_can_be_permanent(browser: Client, boss: Any) -> None:
    browser.post(reverse(ADD), form(boss, expires_at_0="", expires_at_1=""))
    assert PersonalAccessToken.objects.get().expires_at is None


def test_invalid_arguments_create_no_token(browser: Client, boss: Any, subtests: pytest.Subtests) -> None:
    for wrong in (
        {"expires_at_0": "2020-01-01"},
        {"audience": "nowhere"},
        {"scopes": 'qu"ote'},
        {"name": ""},
        {"user": ""},
    ):
        with subtests.test(wrong=wrong), rolled_back():
            response = browser.post(reverse(ADD), form(boss, **wrong))
            assert response.context["adminform"].form.errors
            assert not PersonalAccessToken.objects.exists()


def test_only_superusers_create_tokens_for_others(client: Client, boss: Any) -> None:
    """A token acts in its user's name, so this would otherwise be a way to become a superuser."""
    clerk = user("clerk", "add_personalaccesstoken")
    client.force_login(clerk)
    assert client.post(reverse(ADD), form(boss)).context["adminform"].form.errors.keys() == {"user"}
    assert TOKEN.search(client.post(reverse(ADD), form(clerk)).content.decode())
    assert PersonalAccessToken.objects.get().user == clerk
    client.force_login(boss)
    client.post(reverse(ADD), form(clerk))
    assert PersonalAccessToken.objects.filter(user=clerk).count() == 2


def issue(of: Any, **options: Any) -> PersonalAccessToken:
    return PersonalAccessToken.issue(**{"user": of, "name": "ci", "expires": None, **options})[0]


def test_pages_of_a_token_show_its_prefix_and_scopes_and_not_its_hash(browser: Client, boss: Any) -> None:
    row = issue(boss, scopes=["books:read"])
    for page in (reverse(LIST), reverse(CHANGE, args=[row.pk])):
        text = browser.get(page).content.decode()
        assert row.prefix in text
        assert "books:read" in text
        assert "usable" in text
        assert row.token_hash not in text


def test_a_token_cannot_be_edited(browser: Client, boss: Any) -> None:
    row = issue(boss)
    assert browser.post(reverse(CHANGE, args=[row.pk]), form(boss, scopes="more")).status_code == 403
    assert 'name="_save"' not in browser.get(reverse(CHANGE, args=[row.pk])).content.decode()


def revoke(client: Client, *rows: PersonalAccessToken) -> str:
    data = {"action": "revoke", "_selected_action": [row.pk for row in rows]}
    return client.post(reverse(LIST), data, follow=True).content.decode()


def test_selected_tokens_are_revoked(browser: Client, boss: Any) -> None:
    revoked, kept = issue(boss), issue(boss)
    assert "1 token was revoked." in revoke(browser, revoked)
    assert set(PersonalAccessToken.objects.usable()) == {kept}
    assert "0 tokens were revoked." in revoke(browser, revoked)


def test_revoking_needs_the_change_permission(client: Client, boss: Any) -> None:
    row = issue(boss)
    client.force_login(user("viewer", "view_personalaccesstoken"))
    revoke(client, row)
    assert PersonalAccessToken.objects.get().is_usable
    client.force_login(user("keeper", "view_personalaccesstoken", "change_personalaccesstoken"))
    revoke(client, row)
    assert not PersonalAccessToken.objects.get().is_usable


def test_a_token_is_revoked_on_its_own_page_after_a_confirmation(browser: Client, boss: Any) -> None:
    row = issue(boss)
    change, act = reverse(CHANGE, args=[row.pk]), reverse("admin:mcp_django_personalaccesstoken_revoke", args=[row.pk])
    assert f'<a href="{act}">Revoke token</a>' in browser.get(change).content.decode()
    assert "lose access" in browser.get(act).content.decode()
    assert PersonalAccessToken.objects.get().is_usable
    assert "The token was revoked." in browser.post(act, follow=True).content.decode()
    assert not PersonalAccessToken.objects.get().is_usable
    assert act not in browser.get(change).content.decode()


def test_the_list_starts_with_the_state_and_can_be_filtered_by_it(browser: Client, boss: Any) -> None:
    now = timezone.now()
    rows = {
        "usable": issue(boss, audience="staff"),
        "expired": issue(boss, expires=now - timedelta(days=1)),
        "revoked": issue(boss),
    }
    rows["revoked"].revoke()
    page = browser.get(reverse(LIST)).content.decode()
    assert re.findall(r'<th scope="col" class="[^"]*column-(\w+)', page)[:2] == ["name", "state"]
    assert not re.findall(r"<a href=\"\?[^>]*>\s*</a>", page)
    assert "all servers" in page
    for state, row in rows.items():
        assert list(browser.get(reverse(LIST), {"state": state}).context["cl"].result_list) == [row]
    assert set(browser.get(reverse(LIST), {"audience": "*"}).context["cl"].result_list) == {
        rows["expired"],
        rows["revoked"],
    }


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
def test_declared_scopes_are_checkboxes_with_the_required_ones_ticked(browser: Client, boss: Any) -> None:
    page = browser.get(reverse(ADD)).content.decode()
    boxes = re.findall(r'<input type="checkbox" name="scopes" value="([^"]+)"[^>]*?( checked)?>', page)
    assert boxes == [("orders:read", " checked"), ("orders:all", " checked")]
    assert "Read orders" in page
    response = browser.post(reverse(ADD), form(boss, scopes=["order:read"]))
    assert "scopes" in response.context["adminform"].form.errors
    browser.post(reverse(ADD), form(boss, scopes=["orders:read"]))
    assert PersonalAccessToken.objects.get().scopes == ["orders:read"]


@override_settings(MCP=SCOPED)
def test_a_scope_that_is_reserved_for_other_users_is_refused(browser: Client, boss: Any) -> None:
    ScopeGrant.objects.create(scope="orders:all", groups=["staff"])
    response = browser.post(reverse(ADD), form(boss, scopes=["orders:all"]))
    assert "reserves orders:all" in str(response.context["adminform"].form.errors)


@override_settings(MCP=SCOPED)
def test_a_token_without_any_rights_is_shown_with_a_warning(browser: Client, boss: Any) -> None:
    page = browser.post(reverse(ADD), form(boss, scopes=[])).content.decode()
    assert TOKEN.search(page)
    assert "can do nothing: it lacks orders:read" in page
