"""A client with a metadata document, from its first request to its tokens: fetches and changes of the document."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import Application
from pytest_django.fixtures import Settings

from mcp_django.contrib.oauth.clients import documents
from mcp_django.contrib.oauth.models import ClientProfile
from tests.contrib.oauth.document_server import HOST, DocumentServer, certificate, document, response
from tests.contrib.oauth.oauth_client import SCOPES, authorization_path, read_redirect
from tests.contrib.oauth.oauth_flow import post
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
URL = f"https://{HOST}/client.json"
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # RFC 7636, appendix B
CALLBACK = "https://client.example/cb"
YES = {"allow": "1", "granted": list(SCOPES)}


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls") / "client.pem", HOST)


@pytest.fixture
def web(site: Settings, pem: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DocumentServer]:
    with DocumentServer(pem).running() as server:
        monkeypatch.setattr(documents, "make_fetcher", server.fetcher)
        server.pages["/client.json"] = document(URL, client_name="Claude")
        yield server


def request(**changes: Any) -> str:
    client = SimpleNamespace(client_id=changes.pop("client_id", URL))
    return authorization_path(client, redirect_uri=changes.pop("redirect_uri", CALLBACK), **changes)


def page(response: Any) -> str:
    assert response.status_code == 200, response.content
    return str(response.content.decode())


def test_the_page_shows_the_host_of_the_document(browser: Client, web: DocumentServer) -> None:
    shown = page(browser.get(request()))
    assert "Claude" in shown
    assert HOST in shown
    assert web.asked == ["/client.json"]


def test_consent_leads_to_tokens_without_another_fetch(browser: Client, web: DocumentServer) -> None:
    page(browser.get(request()))
    code = read_redirect(browser.post(request(), YES), CALLBACK)["code"]
    Application.objects.update(cimd_expires_at=timezone.now() - timedelta(days=1))
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, "client_id": URL}
    told = post("/o/token/", {**form, "code_verifier": VERIFIER})
    assert told.status_code == 200
    assert "refresh_token" in json.loads(told.content)
    assert web.asked == ["/client.json"]


OTHER_REQUESTS: list[tuple[str, dict[str, str]]] = [
    ("/o/token/", {"grant_type": "authorization_code", "code": "x", "redirect_uri": CALLBACK}),
    ("/o/token/", {"grant_type": "refresh_token", "refresh_token": "x"}),
    ("/o/token/", {"grant_type": "client_credentials"}),
    ("/o/revoke_token/", {"token": "x"}),
    ("/o/introspect/", {"token": "x"}),
]


def test_no_other_endpoint_fetches_a_document(web: DocumentServer, subtests: pytest.Subtests) -> None:
    for endpoint, form in OTHER_REQUESTS:
        with subtests.test(endpoint=endpoint, form=form), rolled_back():
            for extra in ({}, {"client_secret": "x"}):
                sent = {**form, **extra, "client_id": URL, "code_verifier": VERIFIER}
                assert post(endpoint, sent).status_code in (400, 401)
            assert not web.resolved
            assert not Application.objects.exists()


def test_an_anonymous_request_fetches_no_document(web: DocumentServer, subtests: pytest.Subtests) -> None:
    for prompt in (None, "none", "login", "consent"):
        with subtests.test(prompt=prompt), rolled_back():
            for method in ("get", "post", "head"):
                assert getattr(Client(), method)(request(prompt=prompt)).status_code in (302, 400, 405)
            assert not web.resolved
            assert not Application.objects.exists()


def test_a_redirect_uri_outside_the_document_is_refused(browser: Client, web: DocumentServer) -> None:
    for uri in ("https://evil.example/cb", CALLBACK + "/", CALLBACK + "?x=1", "http://client.example/cb"):
        response = browser.get(request(redirect_uri=uri))
        assert response.status_code == 400
        assert "Location" not in response


def test_an_unreadable_document_shows_an_error_page(browser: Client, web: DocumentServer) -> None:
    web.pages["/client.json"] = response(b"", status="404 Not Found")
    answer = browser.get(request())
    assert answer.status_code == 400
    assert "document" in answer.content.decode()
    assert "404" not in answer.content.decode()


def test_an_id_without_a_document_shows_an_error_page(
    browser: Client, web: DocumentServer, subtests: pytest.Subtests
) -> None:
    for url in ("https://127.0.0.1/c.json", "https://localhost/c.json", URL + "?x", URL + "#x", "https://"):
        with subtests.test(url=url), rolled_back():
            assert browser.get(request(client_id=url)).status_code == 400
            assert not web.resolved


def test_a_changed_document_requires_consent(browser: Client, web: DocumentServer, subtests: pytest.Subtests) -> None:
    for members in ({"redirect_uris": [CALLBACK, "https://new.example/cb"]}, {"client_name": "Other"}):
        with subtests.test(members=members), rolled_back():
            web.asked.clear()
            web.pages["/client.json"] = document(URL, client_name="Claude")
            read_redirect(browser.post(request(), YES), CALLBACK)
            read_redirect(browser.get(request()), CALLBACK)
            Application.objects.update(cimd_expires_at=timezone.now() - timedelta(seconds=1))
            read_redirect(browser.get(request()), CALLBACK)
            Application.objects.update(cimd_expires_at=timezone.now() - timedelta(seconds=1))
            web.pages["/client.json"] = document(URL, **{"client_name": "Claude", **members})
            page(browser.get(request()))
            assert web.asked == ["/client.json"] * 3


def test_a_blocked_client_is_refused_despite_its_document(browser: Client, web: DocumentServer) -> None:
    page(browser.get(request()))
    ClientProfile.objects.update(blocked=True)
    Application.objects.update(cimd_expires_at=timezone.now() - timedelta(seconds=1))
    assert browser.get(request()).status_code == 400
    assert browser.post(request(), YES).status_code == 400


def test_the_page_escapes_the_name_of_the_document(browser: Client, ada: User, web: DocumentServer) -> None:
    name = '<script>alert(1)</script>\u202e\u2066 & "friends"'
    web.pages["/client.json"] = document(URL, client_name=name)
    shown = page(browser.get(request()))
    assert "<script>alert" not in shown
    assert "&lt;script&gt;" in shown
    assert "\u202e" not in shown
    assert "\u2066" not in shown
