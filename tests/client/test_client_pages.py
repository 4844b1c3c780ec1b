"""The pages of connected services, the authorization flow, and its permissions."""

import dataclasses
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from mcp_django import http_client
from mcp_django.client.oauth.token_store import TokenRow
from mcp_django.conf import get_settings
from mcp_django.models import ClientFlow, ClientToken
from tests.client.authority import ISSUER, PUBLIC, SERVER, Authority, query
from tests.client.oauth.test_renewal import OLD

pytestmark = pytest.mark.django_db
SERVICES, CONNECT, CALLBACK = "/mcp/clients/", "/mcp/clients/one/connect/", "/mcp/clients/one/callback/"
ENTRY: dict[str, Any] = {"URL": SERVER, "AUTH": {"TYPE": "oauth"}}
OURS: dict[str, Any] = {"URL": SERVER, "AUTH": {"TYPE": "oauth", "PER": "project"}}
KEYED: dict[str, Any] = {"URL": SERVER, "AUTH": {"TYPE": "bearer", "TOKEN": "t"}}


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Replace the network by the authority."""
    found = Authority()

    async def resolve(host: str, port: int) -> list[str]:
        return [PUBLIC]

    monkeypatch.setattr(http_client, "_resolve_host", resolve)
    monkeypatch.setattr(http_client, "_create_transport", lambda: found)
    return found


@pytest.fixture(autouse=True)
def project(settings: Settings, authority: Authority) -> Settings:
    settings.ROOT_URLCONF = "tests.client.urls"
    settings.LOGIN_URL = "login"
    settings.MCP = {
        "AUTH": "none",
        "ORIGIN": "https://testserver",
        "CLIENTS": {"one": ENTRY, "ours": OURS, "keyed": KEYED},
    }
    return settings


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def browser(ada: User) -> Client:
    return browser_of(ada)


def browser_of(user: User, **options: Any) -> Client:
    found = Client(**options)
    found.force_login(user)
    return found


def begin(browser: Client, back: str = "", alias: str = "one") -> dict[str, str]:
    """The parameters that the authorization server is asked with."""
    answer = browser.post(f"/mcp/clients/{alias}/connect/", {"next": back}, secure=True)
    assert answer.status_code == 302, answer.content.decode()
    return query(answer["Location"])


def come_back(browser: Client, asked: dict[str, str], path: str = CALLBACK, **answer: Any) -> HttpResponse:
    said = {"code": "c", "iss": ISSUER, "state": asked["state"], **answer}
    return browser.get(path, {name: value for name, value in said.items() if value is not None}, secure=True)


def row(user: User | None, alias: str = "one") -> TokenRow:
    return TokenRow(get_settings().clients[alias], user)


def text(browser: Client, path: str = SERVICES) -> str:
    answer = browser.get(path, secure=True)
    assert answer.status_code == 200
    return answer.content.decode()


def test_every_page_requires_a_login(subtests: pytest.Subtests) -> None:
    for path, after in [
        (SERVICES, SERVICES),
        (f"{CONNECT}?next=/a/", f"{CONNECT}%3Fnext%3D/a/"),
        (f"{CALLBACK}?code=s3cret", CONNECT),
    ]:
        with subtests.test(path=path, after=after):
            answer = Client().get(path, secure=True)
            assert (answer.status_code, answer["Location"]) == (302, f"/accounts/login/?next={after}")


def test_only_services_that_the_user_may_connect_have_a_page(browser: Client, subtests: pytest.Subtests) -> None:
    for alias in ["two", "keyed", "ours"]:
        with subtests.test(alias=alias):
            for path in (f"/mcp/clients/{alias}/connect/", f"/mcp/clients/{alias}/callback/"):
                assert browser.get(path, secure=True).status_code == 404
            assert browser.post(f"/mcp/clients/{alias}/connect/", secure=True).status_code == 404


def test_a_get_request_starts_no_flow(browser: Client, authority: Authority) -> None:
    assert "Connect <bdi>one</bdi>" in text(browser, CONNECT)
    assert authority.asked == []
    assert not ClientFlow.objects.exists()


def test_another_site_cannot_start_a_flow(ada: User, authority: Authority) -> None:
    strict = browser_of(ada, enforce_csrf_checks=True)
    assert strict.post(CONNECT, secure=True).status_code == 403
    assert strict.post(SERVICES, {"alias": "one"}, secure=True).status_code == 403
    assert authority.asked == []


def test_a_user_connects(browser: Client, ada: User) -> None:
    assert "Not connected" in text(browser)
    asked = begin(browser)
    assert asked["redirect_uri"] == f"https://testserver{CALLBACK}"
    answer = come_back(browser, asked)
    assert (answer.status_code, answer["Location"]) == (302, f"{SERVICES}?connected=one")
    page = text(browser, answer["Location"])
    assert "one is connected." in page
    assert "s3cret" not in page
    held = row(ada).read()
    assert held is not None
    assert held.grant is not None
    assert held.grant.issuer == ISSUER


def test_the_flow_returns_within_the_site(browser: Client, subtests: pytest.Subtests) -> None:
    for wanted, back in [
        ("/shop/?a=1", "/shop/?a=1"),
        ("https://testserver/shop/", "https://testserver/shop/"),
        ("https://evil.example/", f"{SERVICES}?connected=one"),
        ("//evil.example/", f"{SERVICES}?connected=one"),
        ("http://testserver/", f"{SERVICES}?connected=one"),
        ("javascript:alert(1)", f"{SERVICES}?connected=one"),
        ("/" + "x" * 3000, f"{SERVICES}?connected=one"),
    ]:
        with subtests.test(wanted=wanted, back=back):
            assert come_back(browser, begin(browser, wanted))["Location"] == back


def test_the_row_of_a_flow_holds_no_secret_in_clear(browser: Client) -> None:
    asked = begin(browser, "/s3cret-place/")
    (kept,) = ClientFlow.objects.values()
    assert asked["state"] not in repr(kept)
    assert "s3cret" not in repr(kept)
    assert browser.session["mcp_client_browser"] not in repr(kept)


def test_an_authorization_response_is_valid_once(browser: Client, authority: Authority) -> None:
    asked = begin(browser)
    assert come_back(browser, asked).status_code == 302
    assert come_back(browser, asked).status_code == 400
    assert len(authority.forms) == 1


def test_an_authorization_response_is_invalid_after_a_refusal(browser: Client, authority: Authority) -> None:
    asked = begin(browser)
    assert come_back(browser, asked, iss="https://evil.example").status_code == 400
    assert come_back(browser, asked).status_code == 400
    assert authority.forms == []


def test_another_browser_of_the_user_cannot_finish_a_flow(browser: Client, ada: User, authority: Authority) -> None:
    asked = begin(browser)
    other = browser_of(ada)
    assert come_back(other, asked).status_code == 400
    begin(other)
    assert come_back(other, asked).status_code == 400
    assert authority.forms == []
    assert come_back(browser, asked).status_code == 302


def test_another_user_cannot_finish_a_flow(browser: Client, authority: Authority) -> None:
    """Otherwise one user could connect another's account to their own."""
    asked = begin(browser)
    grace = User.objects.create_user("grace")
    theirs = browser_of(grace)
    begin(theirs)
    assert come_back(theirs, asked).status_code == 400
    assert authority.forms == []
    assert row(grace).read() is None


def test_a_flow_cannot_be_finished_after_a_login_as_another_user(browser: Client) -> None:
    asked = begin(browser)
    browser.force_login(User.objects.create_user("grace"))
    assert come_back(browser, asked).status_code == 400


def test_an_authorization_response_expires(browser: Client) -> None:
    asked = begin(browser)
    ClientFlow.objects.update(expires_at=timezone.now())
    assert come_back(browser, asked).status_code == 400


def test_an_authorization_response_is_bound_to_its_client(browser: Client, project: Settings) -> None:
    project.MCP = project.MCP | {"CLIENTS": {"one": ENTRY, "two": ENTRY}}
    asked = begin(browser)
    assert come_back(browser, asked, "/mcp/clients/two/callback/").status_code == 400


def test_a_server_with_a_changed_url_gets_no_code(browser: Client, project: Settings, authority: Authority) -> None:
    asked = begin(browser)
    project.MCP = project.MCP | {"CLIENTS": {"one": ENTRY | {"URL": "https://moved.example/mcp"}}}
    assert come_back(browser, asked).status_code == 400
    assert authority.forms == []


def test_an_unsolicited_authorization_response_is_refused(browser: Client, subtests: pytest.Subtests) -> None:
    for state in [None, "", "x", "\x00", "é" * 3000]:
        with subtests.test(state=state):
            begin(browser)
            assert come_back(browser, {"state": ""}, state=state).status_code == 400


def test_a_repeated_parameter_is_refused(browser: Client) -> None:
    asked = begin(browser)
    assert come_back(browser, asked, code=["a", "b"]).status_code == 400


def test_a_denied_authorization_shows_that_nothing_happened(browser: Client, ada: User) -> None:
    answer = come_back(browser, begin(browser), code=None, error="access_denied")
    assert answer.status_code == 403
    assert "nothing is connected" in answer.content.decode()
    assert row(ada).read() is None


def test_texts_of_other_servers_are_on_no_page(browser: Client, authority: Authority) -> None:
    answer = come_back(browser, begin(browser), code=None, error="<b>x", error_description="<b>y")
    assert b"<b>" not in answer.content
    authority.metadata["issuer"] = "https://evil.example/<b>"
    answer = browser.post(CONNECT, secure=True)
    assert answer.status_code == 502
    assert b"evil" not in answer.content


def test_the_open_flows_of_a_user_are_limited(browser: Client, ada: User) -> None:
    first = begin(browser)
    for _ in range(8):
        asked = begin(browser)
    assert ClientFlow.objects.count() == 8
    assert come_back(browser, first).status_code == 400
    assert come_back(browser, asked).status_code == 302


def test_a_new_flow_deletes_expired_ones(browser: Client) -> None:
    begin(browser)
    ClientFlow.objects.update(expires_at=timezone.now())
    begin(browser_of(User.objects.create_user("grace")))
    assert ClientFlow.objects.count() == 1


def test_any_worker_can_finish_a_flow(browser: Client, project: Settings) -> None:
    """This holds with a rotated secret, too."""
    asked = begin(browser)
    project.SECRET_KEY_FALLBACKS, project.SECRET_KEY = [project.SECRET_KEY], "another"
    assert come_back(browser, asked).status_code == 302


def test_a_user_sees_and_ends_their_own_connections_only(browser: Client, ada: User, authority: Authority) -> None:
    grace = User.objects.create_user("grace")
    row(ada).write(OLD)
    row(grace).write(dataclasses.replace(OLD, scope="secret-scope"))
    page = text(browser)
    assert "<code>read</code>" in page
    assert "secret-scope" not in page
    answer = browser.post(SERVICES, {"alias": "one"}, secure=True)
    assert "one is not connected any more." in answer.content.decode()
    assert authority.revoked == ["r0", "old"]
    assert row(ada).read() is None
    assert row(grace).read() is not None
    answer = browser.post(SERVICES, {"alias": "ours"}, secure=True)
    assert "This service is not connected." in answer.content.decode()


def test_a_failed_revocation_still_deletes_the_connection(browser: Client, ada: User, authority: Authority) -> None:
    row(ada).write(dataclasses.replace(OLD, revocation_endpoint=None))
    answer = browser.post(SERVICES, {"alias": "one"}, secure=True)
    assert "end the access there, too" in answer.content.decode()
    assert row(ada).read() is None


def test_a_connection_without_settings_can_be_ended(browser: Client, ada: User, project: Settings) -> None:
    row(ada).write(OLD)
    project.MCP = project.MCP | {"CLIENTS": {}}
    page = text(browser)
    assert 'id="service-one"' in page
    assert CONNECT not in page
    browser.post(SERVICES, {"alias": "one"}, secure=True)
    assert not ClientToken.objects.exists()


def test_a_server_with_a_changed_url_must_be_connected_again(browser: Client, ada: User, project: Settings) -> None:
    row(ada).write(OLD)
    project.MCP = project.MCP | {"CLIENTS": {"one": ENTRY | {"URL": "https://moved.example/mcp"}}}
    assert "Not connected" in text(browser)
    assert row(ada).read() is None


def test_the_connection_of_the_project_needs_a_permission(browser: Client, ada: User) -> None:
    assert 'id="service-ours"' not in text(browser)
    ada.user_permissions.add(Permission.objects.get(codename="change_clienttoken"))
    assert "for all users of this site" in text(browser, "/mcp/clients/ours/connect/")
    assert come_back(browser, begin(browser, alias="ours"), "/mcp/clients/ours/callback/").status_code == 302
    held = row(None, "ours").read()
    assert held is not None
    assert held.grant is not None
    assert "all users of this site" in text(browser)


def test_pages_are_kept_out_of_caches_and_frames(browser: Client, subtests: pytest.Subtests) -> None:
    for path in [SERVICES, CONNECT]:
        with subtests.test(path=path):
            answer = browser.get(path, secure=True)
            assert (answer["Cache-Control"], answer["X-Frame-Options"]) == ("no-store", "DENY")
            assert answer["Referrer-Policy"] == "same-origin"
            policy = answer["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "script-src" not in policy
            assert f"form-action 'self'{' https:' if path == CONNECT else ''};" in policy


def test_pages_are_valid(browser: Client, ada: User) -> None:
    """Labels, ids and references match, and every element is closed."""
    row(ada).write(OLD)
    row(ada).save_missing_scopes("read admin")
    problem = come_back(browser, {"state": "x"}).content.decode()
    for page in (text(browser), text(browser, CONNECT), problem):
        outline = Outline()
        outline.feed(page)
        assert outline.open == []
        assert outline.headings[0] == "h1"
        assert outline.headings.count("h1") == 1
        assert outline.named <= outline.ids
        assert outline.lang


class Outline(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.ids: set[str] = set()
        self.named: set[str] = set()
        self.lang = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        if tag not in {"meta", "link", "input", "path", "circle", "rect", "br", "line"}:
            self.open.append(tag)
        if tag in {"h1", "h2", "h3"}:
            self.headings.append(tag)
        if "id" in said:
            self.ids.add(said["id"])
        self.named.update(said.get("aria-describedby", "").split())
        self.lang = said.get("lang", self.lang) if tag == "html" else self.lang

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag


DOCUMENT = "/mcp/clients/client-metadata.json"


def test_the_project_serves_its_client_metadata_document(project: Settings) -> None:
    assert Client().get(DOCUMENT, secure=True).status_code == 404
    url = f"https://testserver{DOCUMENT}"
    auth = ENTRY["AUTH"] | {"CLIENT_METADATA_URL": url, "CLIENT_NAME": "Shop"}
    project.MCP = project.MCP | {"CLIENTS": {"one": ENTRY | {"AUTH": auth}, "ours": OURS}}
    answer = Client().get(DOCUMENT, secure=True)
    assert answer["Content-Type"] == "application/json"
    assert answer.json() == {
        "client_id": url,
        "client_name": "Shop",
        "client_uri": "https://testserver/",
        "redirect_uris": [f"https://testserver{CALLBACK}"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    }


def test_the_own_authorization_server_accepts_the_document(project: Settings) -> None:
    from mcp_django.contrib.oauth.clients.documents import parse_document

    url = "https://testserver.example" + DOCUMENT
    auth = ENTRY["AUTH"] | {"CLIENT_METADATA_URL": url}
    clients = {"one": ENTRY | {"AUTH": auth}}
    project.ALLOWED_HOSTS = ["testserver.example"]
    project.MCP = {"AUTH": "none", "ORIGIN": "https://testserver.example", "CLIENTS": clients}
    answer = Client().get(DOCUMENT, secure=True, headers={"Host": "testserver.example"})
    assert parse_document(url, answer.content, schemes=()).metadata.redirect_uris


@pytest.fixture
def root(db: None) -> Client:
    return browser_of(User.objects.create_superuser("root"))


def test_the_admin_shows_connections_and_no_secret(root: Client, ada: User) -> None:
    row(ada).write(OLD)
    row(None).save_registration({"client_id": "c1", "client_secret": "client-s3cret"})
    page = root.get("/admin/mcp_django/clienttoken/").content.decode()
    for kept in ClientToken.objects.all():
        page += root.get(f"/admin/mcp_django/clienttoken/{kept.pk}/change/").content.decode()
        assert kept.grant == "" or kept.grant not in page
        assert kept.registration == "" or kept.registration not in page
    assert "must be connected again" not in page
    assert ISSUER in page
    assert "the project" in page
    assert root.get("/admin/mcp_django/clienttoken/add/").status_code == 403
    assert root.get("/admin/mcp_django/clienttoken/?q=ada").status_code == 200
    assert root.get("/admin/mcp_django/clientflow/").status_code == 404


def test_deleting_in_the_admin_revokes_the_tokens(root: Client, ada: User, authority: Authority) -> None:
    row(ada).write(OLD)
    kept = ClientToken.objects.get()
    answer = root.post(f"/admin/mcp_django/clienttoken/{kept.pk}/delete/", {"post": "yes"}, follow=True)
    assert "could not be revoked" not in answer.content.decode()
    assert authority.revoked == ["r0", "old"]
    assert not ClientToken.objects.exists()


def test_the_admin_reports_a_failed_revocation(root: Client, ada: User, project: Settings) -> None:
    row(ada).write(OLD)
    row(None, "ours").write(dataclasses.replace(OLD, revocation_endpoint=None))
    project.MCP = project.MCP | {"CLIENTS": {"ours": OURS}}
    chosen = [str(kept.pk) for kept in ClientToken.objects.all()]
    form = {"action": "delete_selected", "_selected_action": chosen, "post": "yes"}
    answer = root.post("/admin/mcp_django/clienttoken/", form, follow=True)
    assert "2 connections could not be revoked at the server" in answer.content.decode()
    assert not ClientToken.objects.exists()
