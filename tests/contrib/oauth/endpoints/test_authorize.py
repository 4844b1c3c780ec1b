"""The page on which a user decides about a client."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.models import Consent
from tests.contrib.oauth.oauth_client import (
    ISSUER,
    LOOPBACK,
    MCP,
    SCOPES,
    WEB,
    Source,
    authorization_path,
    make_client,
    read_redirect,
)
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


def text(response: Any) -> str:
    """The words of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def grant() -> Any:
    return toolkit_compat.get_grant_model().objects.get()


def test_the_page_shows_the_client_the_scopes_and_the_redirect_target(browser: Client) -> None:
    page = browser.get(authorization_path(make_client()))
    shown = text(page)
    assert page.status_code == 200
    for words in (
        "Claude wants to use",
        "Not verified",
        "Signed in as ada",
        "Not you?",
        "client.example",
        *SCOPES.values(),
    ):
        assert words in shown
    assert MCP in shown
    assert "Any program on this computer" not in shown


def test_a_client_with_a_document_is_shown_with_the_host_of_the_document(browser: Client) -> None:
    shown = text(browser.get(authorization_path(make_client(source=Source.DOCUMENT))))
    assert "Verified: client.example" in shown
    assert "Not verified" not in shown


def test_the_page_warns_of_a_client_on_this_computer(browser: Client) -> None:
    shown = text(browser.get(authorization_path(make_client(LOOPBACK), redirect_uri="http://localhost:33418/callback")))
    assert "localhost:33418 , a program on this computer" in shown
    assert "Any program on this computer could have sent you here" in shown


def test_the_page_warns_of_an_app(browser: Client) -> None:
    uri = "cursor://anysphere.cursor-mcp/oauth/callback"
    page = browser.get(authorization_path(make_client(uri), redirect_uri=uri))
    assert "application on this computer that opens cursor: links" in text(page)
    assert "form-action 'self' cursor:;" in page["Content-Security-Policy"]


def test_the_page_may_not_be_framed_or_stored(browser: Client) -> None:
    page = browser.get(authorization_path(make_client()))
    policy = page["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self' https://client.example https: cursor:;" in policy
    assert page["Cache-Control"] == "no-store"
    assert page["X-Frame-Options"] == "DENY"
    assert page["Referrer-Policy"] == "same-origin"
    assert "style=" not in page.content.decode()
    assert "<script" not in page.content.decode()


def test_the_name_of_a_client_is_escaped(browser: Client) -> None:
    page = browser.get(authorization_path(make_client(name='<script>alert(1)</script>"\u202eevil')))
    assert b"<script>" not in page.content
    assert "\u202e" not in page.content.decode()


def test_consent_redirects_with_a_code_the_issuer_and_the_state(browser: Client) -> None:
    answer = browser.post(authorization_path(make_client()), {"allow": "1", "granted": list(SCOPES)})
    query = read_redirect(answer)
    assert set(query) == {"code", "state", "iss"}
    assert (query["state"], query["iss"]) == ("st-1", ISSUER)
    assert set(grant().scope.split()) == set(SCOPES)
    assert grant().resource == [MCP]
    assert answer["Cache-Control"] == "no-store"


def test_refusal_redirects_with_an_error_the_issuer_and_the_state(browser: Client, subtests: pytest.Subtests) -> None:
    for form in ({}, {"cancel": "1", "granted": list(SCOPES)}, {"allow": ""}):
        with subtests.test(form=form), rolled_back():
            query = read_redirect(browser.post(authorization_path(make_client()), form))
            assert (query["error"], query["state"], query["iss"]) == ("access_denied", "st-1", ISSUER)
            assert not Consent.objects.exists()


def test_an_unticked_scope_is_not_granted(browser: Client) -> None:
    read_redirect(browser.post(authorization_path(make_client()), {"allow": "1", "granted": ["airports:read"]}))
    assert grant().scope == "airports:read"
    assert Consent.objects.get().scopes == ["airports:read"]


def test_a_ticked_scope_that_was_not_offered_is_not_granted(browser: Client) -> None:
    asked = authorization_path(make_client(), scope="airports:read")
    read_redirect(browser.post(asked, {"allow": "1", "granted": ["airports:read", "airports:write", "admin", "\0"]}))
    assert grant().scope == "airports:read"


def test_a_form_without_ticked_scopes_is_shown_again(browser: Client, subtests: pytest.Subtests) -> None:
    for granted in ([], ["admin"], [""]):
        with subtests.test(granted=granted), rolled_back():
            page = browser.post(authorization_path(make_client()), {"allow": "1", "granted": granted})
            assert page.status_code == 200
            assert "Nothing is selected" in text(page)
            assert " checked>" not in page.content.decode()
            assert not toolkit_compat.get_grant_model().objects.exists()


def test_unknown_scopes_are_left_out(browser: Client) -> None:
    page = browser.get(authorization_path(make_client(), scope="airports:read openid whatever"))
    assert re.findall(r'name="granted" value="([^"]+)"', page.content.decode()) == ["airports:read"]


def test_a_decision_posted_by_another_site_is_refused(ada: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ada)
    answer = browser.post(authorization_path(make_client()), {"allow": "1", "granted": list(SCOPES)})
    assert answer.status_code == 403
    assert not toolkit_compat.get_grant_model().objects.exists()


def test_the_page_checks_csrf_tokens_without_the_middleware(ada: User, settings: Settings) -> None:
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "csrf" not in name]
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ada)
    assert browser.post(authorization_path(make_client()), {"allow": "1", "granted": list(SCOPES)}).status_code == 403


def test_fields_of_the_form_do_not_change_the_redirect(browser: Client, subtests: pytest.Subtests) -> None:
    for form in ({"allow": "1", "granted": list(SCOPES)}, {"cancel": "1"}):
        with subtests.test(form=form), rolled_back():
            evil = {
                "redirect_uri": "https://evil.example/cb",
                "client_id": "x",
                "state": "evil",
                "resource": "https://evil.example",
            }
            assert read_redirect(browser.post(authorization_path(make_client()), {**form, **evil}))["state"] == "st-1"
            asked = authorization_path(make_client(name="Other"), redirect_uri="https://evil.example/cb")
            answer = browser.post(asked, {**form, "redirect_uri": WEB})
            assert answer.status_code == 400
            assert "Location" not in answer


def test_the_query_of_a_redirect_uri_is_kept(browser: Client) -> None:
    uri = f"{WEB}?tenant=a%20b&iss=https://evil.example&x"
    answer = browser.post(
        authorization_path(make_client(uri), redirect_uri=uri), {"allow": "1", "granted": list(SCOPES)}
    )
    assert "?tenant=a%20b&x&" in answer["Location"]
    assert read_redirect(answer)["iss"] == ISSUER


def test_a_redirect_uri_may_have_a_private_scheme(browser: Client) -> None:
    uri = "cursor://anysphere.cursor-mcp/oauth/callback"
    answer = browser.post(
        authorization_path(make_client(uri), redirect_uri=uri), {"allow": "1", "granted": list(SCOPES)}
    )
    assert set(read_redirect(answer, uri)) == {"code", "state", "iss"}
