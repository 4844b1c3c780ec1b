"""The page on which users see which clients may act for them, and take that away."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.flows import consents
from mcp_django.contrib.oauth.flows.consents import get_connected_apps
from mcp_django.contrib.oauth.models import Consent
from tests.contrib.oauth.oauth_client import (
    LOOPBACK,
    MCP,
    SCOPES,
    WEB,
    Source,
    authorization_path,
    give_token,
    make_client,
    read_redirect,
)
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
PAGE = "/o/connections/"


def test_each_client_is_shown_with_its_scopes(browser: Client, ada: User) -> None:
    consents.record_consent(ada, make_client(source=Source.DOCUMENT), [MCP], SCOPES, WEB)
    consents.record_consent(ada, make_client(LOOPBACK, name="Editor"), [MCP], ["airports:read"], WEB)
    page = browser.get(PAGE)
    shown = page.content.decode()
    assert page.status_code == 200
    for words in ("Claude", "client.example", "Editor", "Not verified", "this computer", *SCOPES.values(), "not yet"):
        assert words in shown
    assert page["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in page["Content-Security-Policy"]
    assert "<script" not in shown


def test_scopes_of_existing_tokens_are_shown(ada: User, site: Any) -> None:
    application = make_client()
    consents.record_consent(ada, application, [MCP], ["airports:read"], WEB)
    token = give_token(ada, application, "airports:write")
    found = get_connected_apps(ada)[0]
    assert [offer.scope for offer in found.offers] == ["airports:read", "airports:write"]
    assert found.last_used == token.created
    assert found.resource_names == ("testserver/mcp",)


def test_a_client_that_has_tokens_and_no_consent_is_shown_too(ada: User) -> None:
    give_token(ada, make_client(), "airports:read")
    give_token(ada, make_client(name="Over"), "airports:read", seconds=-1)
    assert [one.client.name for one in get_connected_apps(ada)] == ["Claude"]


def test_users_do_not_see_the_clients_of_others(browser: Client) -> None:
    consents.record_consent(User.objects.create_user("bob"), make_client(), [MCP], SCOPES, WEB)
    assert "No application is connected" in browser.get(PAGE).content.decode()


def test_removing_access_ends_consents_codes_and_tokens(browser: Client, ada: User) -> None:
    application = make_client()
    read_redirect(browser.post(authorization_path(application), {"allow": "1", "granted": list(SCOPES)}))
    give_token(ada, application, "airports:read")
    other = give_token(ada, make_client(name="Other"), "airports:read")
    page = browser.post(PAGE, {"client": str(application.pk)})
    assert "Access of Claude was withdrawn." in page.content.decode()
    assert Consent.objects.get().revoked is not None
    assert list(toolkit_compat.get_access_token_model().objects.all()) == [other]
    assert not toolkit_compat.get_grant_model().objects.exists()
    assert [one.client.name for one in get_connected_apps(ada)] == ["Other"]
    # The next request of the client is asked about.
    assert b'name="allow"' in browser.get(authorization_path(application)).content


def test_a_key_of_no_client_ends_nothing(browser: Client, ada: User, subtests: pytest.Subtests) -> None:
    for key in ("", "0", "-1", "x", "9" * 400, "1\0", "\u0661"):
        with subtests.test(key=key), rolled_back():
            consents.record_consent(ada, make_client(), [MCP], SCOPES, WEB)
            page = browser.post(PAGE, {"client": key})
            assert "This application has no access." in page.content.decode()
            assert Consent.objects.get().revoked is None


def test_users_do_not_end_the_access_of_others(browser: Client) -> None:
    bob, application = User.objects.create_user("bob"), make_client()
    consents.record_consent(bob, application, [MCP], SCOPES, WEB)
    assert "This application has no access." in browser.post(PAGE, {"client": application.pk}).content.decode()
    assert Consent.objects.get().revoked is None


def test_anonymous_users_are_sent_to_the_login(site: Any, db: None) -> None:
    for answer in (Client().get(PAGE), Client().post(PAGE, {"client": "1"})):
        assert answer["Location"] == f"/accounts/login/?next={PAGE}"


def test_a_form_of_another_site_revokes_nothing(ada: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ada)
    assert browser.post(PAGE, {"client": "1"}).status_code == 403


def test_the_list_takes_a_constant_number_of_queries(
    browser: Client, ada: User, django_assert_max_num_queries: Any
) -> None:
    for number in range(12):
        consents.record_consent(ada, make_client(WEB, name=f"Client {number}"), [MCP], SCOPES, WEB)
    with django_assert_max_num_queries(8):
        assert browser.get(PAGE).content.count(b"<h2") == 12
