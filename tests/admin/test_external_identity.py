from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client, override_settings
from django.urls import reverse

from mcp_django.models import ExternalIdentity
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db

ISSUER = "https://id.example"
LIST = "admin:mcp_django_externalidentity_changelist"
ADD = "admin:mcp_django_externalidentity_add"
CHANGE = "admin:mcp_django_externalidentity_change"
DELETE = "admin:mcp_django_externalidentity_delete"


@pytest.fixture(autouse=True)
def issuers() -> Iterator[None]:
    with override_settings(MCP={"AUTH": "external", "ISSUERS": [{"ISSUER": ISSUER}]}):
        yield


def user(name: str, *permissions: str, **fields: Any) -> Any:
    made = get_user_model()._default_manager.create_user(name, is_staff=True, **fields)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return made


@pytest.fixture
def browser(client: Client) -> Client:
    client.force_login(user("superuser", is_superuser=True))
    return client


def form(of: Any, **fields: Any) -> dict[str, Any]:
    return {"issuer": ISSUER, "subject": "ada", "user": of.pk} | fields


def test_a_superuser_links_another_user(browser: Client) -> None:
    ada = user("ada")
    assert browser.post(reverse(ADD), form(ada)).status_code == 302
    row = ExternalIdentity.objects.get()
    assert (row.issuer, row.subject, row.user, row.origin) == (ISSUER, "ada", ada, "person")
    page = browser.get(reverse(LIST), {"q": "ada"}).content.decode()
    assert ISSUER in page
    assert "a person" in page
    assert browser.get(reverse(CHANGE, args=[row.pk])).status_code == 200


def test_without_an_issuer_the_form_explains_the_empty_choice(browser: Client) -> None:
    assert "is empty" not in browser.get(reverse(ADD)).content.decode()
    with override_settings(MCP={"AUTH": "token"}):
        assert "is empty" in browser.get(reverse(ADD)).content.decode()


def test_a_subject_is_linked_once(browser: Client) -> None:
    browser.post(reverse(ADD), form(user("ada")))
    again = browser.post(reverse(ADD), form(user("eve")))
    assert "already has an account" in again.content.decode()
    assert ExternalIdentity.objects.count() == 1


def test_invalid_issuers_and_subjects_are_not_linked(browser: Client, subtests: pytest.Subtests) -> None:
    for fields in ({"issuer": "https://other.example"}, {"subject": "a\tb"}, {"subject": ""}):
        with subtests.test(fields=fields), rolled_back():
            assert browser.post(reverse(ADD), form(user("ada"), **fields)).status_code == 200
            assert not ExternalIdentity.objects.exists()


def test_a_link_cannot_be_changed_but_deleted(browser: Client) -> None:
    ada, eve = user("ada"), user("eve")
    row = ExternalIdentity.objects.create(issuer=ISSUER, subject="ada", user=ada)
    assert browser.post(reverse(CHANGE, args=[row.pk]), form(eve)).status_code == 403
    row.refresh_from_db()
    assert row.user == ada
    browser.post(reverse(DELETE, args=[row.pk]), {"post": "yes"})
    assert not ExternalIdentity.objects.exists()


def test_other_staff_link_only_themselves(client: Client) -> None:
    superuser, clerk = (
        user("superuser", is_superuser=True),
        user("clerk", "add_externalidentity", "view_externalidentity"),
    )
    client.force_login(clerk)
    assert client.post(reverse(ADD), form(superuser)).status_code == 200
    assert not ExternalIdentity.objects.exists()
    client.post(reverse(ADD), form(clerk))
    assert ExternalIdentity.objects.get().user == clerk
