"""Consents in the admin."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.flows import consents
from mcp_django.contrib.oauth.models import Consent
from tests.contrib.oauth.oauth_client import MCP, WEB, authorization_path, give_token, make_client
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
PAGE = "/admin/mcp_oauth/consent/"


@pytest.fixture
def admin(site: None) -> Client:
    """The browser of a superuser."""
    found = Client()
    found.force_login(User.objects.create_superuser("root"))
    return found


@pytest.fixture
def consent(ada: User) -> Consent:
    consents.record_consent(ada, make_client(), [MCP], ["airports:read"], WEB)
    return Consent.objects.get()


def test_consents_cannot_be_added_or_changed(admin: Client, consent: Consent) -> None:
    shown = admin.get(PAGE, {"q": "ada"}).content.decode()
    for words in ("ada", "Claude", MCP, "airports:read", "remembered"):
        assert words in shown
    one = admin.get(f"{PAGE}{consent.pk}/change/")
    assert one.status_code == 200
    assert one.content.decode().count("Scopes:") == 1
    assert b'name="_save"' not in one.content
    assert admin.get(f"{PAGE}add/").status_code == 403


def test_a_withdrawn_consent_is_asked_for_again(admin: Client, browser: Client, consent: Consent) -> None:
    application = consent.application
    assert browser.get(authorization_path(application, scope="airports:read")).status_code == 302
    answer = admin.post(PAGE, {"action": "withdraw", "_selected_action": [consent.pk]}, follow=True)
    assert "1 client lost its access." in answer.content.decode()
    assert "withdrawn" in answer.content.decode()
    assert browser.get(authorization_path(application, scope="airports:read")).status_code == 200


def test_view_permission_withdraws_nothing(ada: User, consent: Consent, browser: Client) -> None:
    ada.is_staff = True
    ada.save()
    ada.user_permissions.add(Permission.objects.get(codename="view_consent"))
    assert b"withdraw" not in browser.get(PAGE).content
    browser.post(PAGE, {"action": "withdraw", "_selected_action": [consent.pk]})
    consent.refresh_from_db()
    assert consent.revoked is None


def test_deleting_a_consent_revokes_its_tokens(admin: Client, consent: Consent, subtests: pytest.Subtests) -> None:
    for many in (False, True):
        with subtests.test(many=many), rolled_back():
            give_token(consent.user, consent.application, "airports:read")
            if many:
                form = {"action": "delete_selected", "_selected_action": [consent.pk], "post": "yes"}
                admin.post(PAGE, form)
            else:
                admin.post(f"{PAGE}{consent.pk}/delete/", {"post": "yes"})
            assert not Consent.objects.exists()
            assert not toolkit_compat.get_access_token_model().objects.exists()
