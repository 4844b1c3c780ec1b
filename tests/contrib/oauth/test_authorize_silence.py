"""Requests that need no consent or a login first, and that no client can change that."""

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import resolve, reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.clients import documents
from mcp_django.contrib.oauth.flows.validator import _is_withdrawn
from mcp_django.contrib.oauth.models import Consent
from tests.contrib.oauth.oauth_client import (
    ISSUER,
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
YES = {"allow": "1", "granted": list(SCOPES)}


def is_page(response: Any) -> bool:
    """Return True if the response asks the user."""
    return response.status_code == 200 and b'name="allow"' in response.content


@pytest.fixture
def allowed(browser: Client) -> Any:
    """A client with a consent of the user."""
    application = make_client(source=Source.DOCUMENT)
    read_redirect(browser.post(authorization_path(application), YES))
    return application


def test_a_user_with_a_consent_is_not_asked_again(browser: Client, allowed: Any) -> None:
    query = read_redirect(browser.get(authorization_path(allowed)))
    assert set(query) == {"code", "state", "iss"}
    read_redirect(browser.get(authorization_path(allowed, scope="airports:read")))
    scopes = {grant.scope for grant in toolkit_compat.get_grant_model().objects.all()}
    assert scopes == {"airports:read airports:write", "airports:read"}


def test_prompt_consent_asks_the_user_again(browser: Client, allowed: Any, subtests: pytest.Subtests) -> None:
    for parameters in ({"prompt": "consent"}, {"prompt": "select_account consent"}):
        with subtests.test(parameters=parameters), rolled_back():
            assert is_page(browser.get(authorization_path(allowed, **parameters)))


def test_a_request_cannot_skip_the_consent_page(browser: Client, subtests: pytest.Subtests) -> None:
    for parameters in ({"approval_prompt": "auto"}, {"prompt": ""}, {"prompt": "never"}):
        with subtests.test(parameters=parameters), rolled_back():
            application = make_client()
            assert is_page(browser.get(authorization_path(application, **parameters)))
            # Not even while it has a token of the user.
            toolkit_compat.get_access_token_model().objects.create(
                user=User.objects.get(),
                application=application,
                token="t",
                scope=" ".join(SCOPES),
                expires=timezone.now() + timedelta(hours=1),
            )
            assert is_page(browser.get(authorization_path(application, **parameters)))


def test_prompt_none_of_a_new_client_is_consent_required(browser: Client, allowed: Any) -> None:
    assert "code" in read_redirect(browser.get(authorization_path(allowed, prompt="none")))
    query = read_redirect(browser.get(authorization_path(make_client(), prompt="none")))
    assert (query["error"], query["state"], query["iss"]) == ("consent_required", "st-1", ISSUER)


def test_additional_scopes_require_consent(browser: Client) -> None:
    application = make_client()
    read_redirect(browser.post(authorization_path(application, scope="airports:read"), YES))
    assert is_page(browser.get(authorization_path(application)))


def test_another_redirect_uri_requires_consent(browser: Client, allowed: Any) -> None:
    allowed.redirect_uris += " https://client.example/new"
    allowed.save()
    assert is_page(browser.get(authorization_path(allowed)))


def test_a_loopback_client_requires_consent_each_time(browser: Client) -> None:
    application = make_client(LOOPBACK)
    read_redirect(browser.post(authorization_path(application, redirect_uri=LOOPBACK), YES), LOOPBACK)
    assert is_page(browser.get(authorization_path(application, redirect_uri=LOOPBACK)))


def test_a_revoked_consent_is_asked_for_again(browser: Client, allowed: Any) -> None:
    Consent.objects.update(revoked=timezone.now())
    assert is_page(browser.get(authorization_path(allowed)))


def test_an_operator_may_skip_consent_for_a_manual_client(browser: Client) -> None:
    application = make_client(LOOPBACK, "https://client.example/cb", source=Source.MANUAL)
    application.skip_authorization = True
    application.save()
    assert "code" in read_redirect(browser.get(authorization_path(application)))
    assert is_page(browser.get(authorization_path(application, redirect_uri=LOOPBACK)))


def test_an_anonymous_user_returns_to_the_page_after_login(ada: User) -> None:
    asked = authorization_path(make_client(), state="https://evil.example/?a=b&c")
    answer = Client().get(asked)
    there = urlsplit(answer["Location"])
    assert there.path == "/accounts/login/"
    assert parse_qs(there.query)["next"] == [asked]
    browser = Client()
    back = browser.post(answer["Location"], {"username": "ada", "password": "pw"})
    assert back["Location"] == asked
    assert is_page(browser.get(back["Location"]))


def test_a_login_on_another_host_returns_to_this_site(ada: User, settings: Settings) -> None:
    settings.LOGIN_URL = "https://login.example/in"
    asked = authorization_path(make_client())
    there = urlsplit(Client().get(asked)["Location"])
    assert there.netloc == "login.example"
    assert parse_qs(there.query)["next"] == [f"http://testserver{asked}"]


def test_the_host_header_never_becomes_the_return_url(ada: User, subtests: pytest.Subtests) -> None:
    for host in ("evil.example", "testserver@evil.example"):
        with subtests.test(host=host), rolled_back():
            answer = Client().get(authorization_path(make_client()), headers={"host": host})
            assert answer.status_code == 400 or answer["Location"].startswith("/accounts/login/?next=/o/authorize/")


def test_an_anonymous_decision_redirects_to_the_login(ada: User) -> None:
    answer = Client().post(authorization_path(make_client()), YES)
    assert answer["Location"].startswith("/accounts/login/?next=/o/authorize/")
    assert not toolkit_compat.get_grant_model().objects.exists()


def test_prompt_none_of_an_anonymous_user_is_login_required(ada: User) -> None:
    query = read_redirect(Client().get(authorization_path(make_client(), prompt="none")))
    assert (query["error"], query["state"], query["iss"]) == ("login_required", "st-1", ISSUER)


def test_no_document_is_fetched_for_an_anonymous_user(
    ada: User, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(documents, "refresh_client", lambda client_id, user: fetched.append(client_id))
    for prompt in (None, "none"):
        with subtests.test(prompt=prompt), rolled_back():
            application = make_client()
            application.client_id = "https://stranger.example/client"
            answer = Client().get(authorization_path(application, prompt=prompt))
            assert answer.status_code == (302 if prompt is None else 400)
            assert not fetched


def test_an_unavailable_document_is_reported_to_the_user(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(client_id: str, user: User) -> None:
        raise documents.ClientDocumentUnavailable("The document could not be read")

    monkeypatch.setattr(documents, "refresh_client", unavailable)
    answer = browser.get(authorization_path(make_client(source=Source.DOCUMENT)))
    assert answer.status_code == 400
    assert b"The document could not be read" in answer.content


def test_prompt_login_requires_another_login(browser: Client, allowed: Any) -> None:
    there = urlsplit(browser.get(authorization_path(allowed, prompt="login"))["Location"])
    back = parse_qs(there.query)["next"][0]
    assert there.path == "/accounts/login/"
    assert "prompt" not in back
    assert "code" in read_redirect(browser.get(back))


def test_a_deactivated_user_has_to_log_in(browser: Client) -> None:
    User.objects.update(is_active=False)
    assert browser.post(authorization_path(make_client()), YES)["Location"].startswith("/accounts/login/")


def test_not_you_logs_out_and_redirects_to_the_login(browser: Client) -> None:
    asked = authorization_path(make_client())
    page = browser.post("/o/switch/", {"next": asked})
    assert page.status_code == 200
    assert "_auth_user_id" not in browser.session
    assert b'href="/accounts/login/?next=/o/authorize/' in page.content


ELSEWHERE: list[str] = [
    "https://evil.example/o/authorize/",
    "//evil.example/o/authorize/",
    "/admin/",
    "",
    "/o/authorize/\\@evil",
    "\0",
]


def test_not_you_redirects_nowhere_else(browser: Client, subtests: pytest.Subtests) -> None:
    for there in ELSEWHERE:
        with subtests.test(there=there), rolled_back():
            browser.force_login(User.objects.get())
            page = browser.post("/o/switch/", {"next": there})
            assert b'href="/accounts/login/?next=/o/connections/"' in page.content
            assert b"evil" not in page.content


def test_only_a_form_of_this_site_logs_out(ada: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ada)
    assert browser.post("/o/switch/", {"next": authorization_path(make_client())}).status_code == 403
    assert browser.get("/o/switch/").status_code == 405


def test_consent_for_two_resources_is_remembered_for_both(browser: Client, settings: Settings) -> None:
    other = "https://testserver/other"
    settings.MCP = settings.MCP | {"SERVERS": {"default": {}, "other": {"PATH": "other"}}}
    application = make_client()
    both = authorization_path(application, resource=[MCP, other])
    assert other.encode() in browser.get(both).content
    read_redirect(browser.post(both, YES))
    assert toolkit_compat.get_grant_model().objects.get().resource == [MCP, other]
    assert {row.resource for row in Consent.objects.all()} == {MCP, other}
    read_redirect(browser.get(both))
    read_redirect(browser.get(authorization_path(application, resource=other)))


def test_paths_of_old_clients_redirect_to_the_page(browser: Client, subtests: pytest.Subtests) -> None:
    for place in ("/authorize", "/authorize/", "/o/authorize"):
        with subtests.test(place=place), rolled_back():
            asked = authorization_path(make_client())
            assert browser.get(asked.replace("/o/authorize/", place))["Location"] == asked


def test_the_page_works_with_the_login_required_middleware(ada: User, settings: Settings) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    asked = authorization_path(make_client())
    assert read_redirect(Client().get(f"{asked}&prompt=none"))["error"] == "login_required"
    assert Client().get(asked.replace("/o/", "/"))["Location"] == asked
    assert Client().get("/o/connections/")["Location"] == "/accounts/login/?next=/o/connections/"


def test_views_of_decisions_run_outside_of_atomic_requests() -> None:
    for name in ("authorize", "connections", "tokens"):
        view = resolve(
            reverse(f"oauth2_provider:{name}", urlconf="tests.contrib.oauth.urls"), urlconf="tests.contrib.oauth.urls"
        ).func
        assert "default" in view._non_atomic_requests  # a transaction that begins by reading cannot always write later


def test_consent_for_one_redirect_uri_does_not_count_for_another(browser: Client) -> None:
    other = "https://client.example/other"
    application = make_client(WEB, other)
    read_redirect(browser.post(authorization_path(application), YES))
    read_redirect(browser.get(authorization_path(application)))
    assert is_page(browser.get(authorization_path(application, redirect_uri=other)))


def test_a_new_consent_makes_tokens_of_the_resource_valid_again(browser: Client) -> None:
    """A withdrawn consent for one redirect URI does not outlive a newer one for another."""
    other = "https://client.example/other"
    application = make_client(WEB, other)
    read_redirect(browser.post(authorization_path(application), YES))
    Consent.objects.update(revoked=timezone.now())
    read_redirect(browser.post(authorization_path(application, redirect_uri=other), YES), other)
    token = give_token(Consent.objects.latest("granted").user, application, "airports:read")
    assert not _is_withdrawn(token)
    Consent.objects.update(revoked=timezone.now())
    assert _is_withdrawn(token)
