"""Clients with a metadata document: fetches of the document, rows, and limits."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db import IntegrityError, connections
from django.http import HttpResponse
from django.test import AsyncClient, override_settings
from django.urls import path
from django.utils import timezone
from oauth2_provider.models import Application

from mcp_django.contrib.oauth.clients import clients, documents
from mcp_django.contrib.oauth.clients.client_metadata import ClientMetadata
from mcp_django.contrib.oauth.clients.documents import ClientDocumentUnavailable, refresh_client
from mcp_django.contrib.oauth.models import ClientProfile
from tests.contrib.oauth.document_server import HOST, DocumentServer, certificate, document, response
from tests.support.savepoints import rolled_back
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.django_db
URL = f"https://{HOST}/client.json"
PATH = "/client.json"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls") / "client.pem", HOST)


@pytest.fixture
def web(pem: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DocumentServer]:
    with DocumentServer(pem).running() as server:
        monkeypatch.setattr(documents, "make_fetcher", server.fetcher)
        server.pages[PATH] = document(URL)
        yield server


@pytest.fixture
def user() -> Any:
    return get_user_model().objects.create(username="alice")


def expire(by: timedelta = timedelta(seconds=1)) -> None:
    Application.objects.filter(client_id=URL).update(cimd_expires_at=timezone.now() - by)
    cache.clear()


def the_client() -> Application:
    found: Application = Application.objects.get(client_id=URL)
    return found


def test_a_client_is_created_from_its_document(web: DocumentServer, user: Any) -> None:
    web.pages[PATH] = document(
        URL,
        client_name="Claude",
        application_type="native",
        client_uri="https://claude.ai/",
        redirect_uris=["http://localhost/callback", "https://claude.ai/cb"],
    )
    refresh_client(URL, user)
    application = the_client()
    assert application.name == "Claude"
    assert application.redirect_uris.split() == ["http://localhost/callback", "https://claude.ai/cb"]
    assert application.client_type == Application.CLIENT_PUBLIC
    assert application.authorization_grant_type == Application.GRANT_AUTHORIZATION_CODE
    assert application.registration_source == Application.RegistrationSource.CIMD
    assert application.user is None
    assert not application.skip_authorization
    assert application.redirect_uri_allowed("http://localhost:50123/callback")
    profile = ClientProfile.objects.get(application=application)
    assert (profile.source, profile.document_url) == (ClientProfile.Source.DOCUMENT, URL)
    assert (profile.application_type, profile.client_uri) == ("native", "https://claude.ai/")
    assert not profile.approved
    assert len(profile.document_hash) == 64


def test_a_document_is_fetched_again_after_it_expires(web: DocumentServer, user: Any) -> None:
    for _ in range(3):
        refresh_client(URL, user)
    assert web.asked == [PATH]
    expire()
    web.pages[PATH] = document(URL, client_name="New name", redirect_uris=["https://new.example/cb"])
    refresh_client(URL, user)
    assert web.asked == [PATH] * 2
    application = the_client()
    assert (application.name, application.redirect_uris) == ("New name", "https://new.example/cb")
    assert application.cimd_expires_at > timezone.now()
    assert not application.redirect_uri_allowed("https://client.example/cb")
    assert ClientProfile.objects.count() == 1


def test_decisions_of_operators_survive_a_new_document(web: DocumentServer, user: Any) -> None:
    refresh_client(URL, user)
    ClientProfile.objects.update(blocked=True, approved=True, allowed_scopes=["a"])
    expire()
    refresh_client(URL, user)
    profile = ClientProfile.objects.get()
    assert (profile.blocked, profile.approved, profile.allowed_scopes) == (True, True, ["a"])


def test_a_stale_document_is_used_for_a_while_if_the_fetch_fails(web: DocumentServer, user: Any) -> None:
    refresh_client(URL, user)
    web.pages[PATH] = response(b"", status="503 Busy")
    expire()
    refresh_client(URL, user)
    assert web.asked == [PATH] * 2
    expire(documents.STALE_DOCUMENT_LIFETIME + timedelta(minutes=1))
    with pytest.raises(ClientDocumentUnavailable):
        refresh_client(URL, user)
    web.pages[PATH] = document(URL)
    cache.clear()
    refresh_client(URL, user)


def test_a_failed_url_is_not_fetched_again_at_once(web: DocumentServer, user: Any) -> None:
    web.pages[PATH] = response(b"", status="404 Not Found")
    for _ in range(3):
        with pytest.raises(ClientDocumentUnavailable):
            refresh_client(URL, user)
    assert web.asked == [PATH]
    web.pages["/other.json"] = document(f"https://{HOST}/other.json")
    refresh_client(f"https://{HOST}/other.json", user)
    cache.clear()
    web.pages[PATH] = document(URL)
    refresh_client(URL, user)


def test_the_cause_of_a_failed_fetch_is_logged_and_not_shown(
    web: DocumentServer, user: Any, caplog: pytest.LogCaptureFixture
) -> None:
    web.addresses = ["10.0.0.1"]
    with caplog.at_level("INFO", "mcp_django.oauth"), pytest.raises(ClientDocumentUnavailable) as raised:
        refresh_client(URL, user)
    assert "public" not in str(raised.value)
    assert "not on the public internet" in caplog.text
    assert "10.0.0.1" not in caplog.text


def test_fetches_are_limited_per_user_and_minute(web: DocumentServer, user: Any) -> None:
    urls = [f"https://{HOST}/{n}.json" for n in range(documents.USER_FETCH_RATE.times + 1)]
    for url in urls:
        web.pages[url.removeprefix(f"https://{HOST}")] = document(url)
    for url in urls[:-1]:
        refresh_client(url, user)
    with pytest.raises(ClientDocumentUnavailable):
        refresh_client(urls[-1], user)
    refresh_client(urls[0], user)
    refresh_client(urls[-1], get_user_model().objects.create(username="bob"))


def test_simultaneous_fetches_are_limited(web: DocumentServer, user: Any) -> None:
    taken = 0
    while documents._fetch_slots.acquire(blocking=False):
        taken += 1
    try:
        with pytest.raises(ClientDocumentUnavailable):
            refresh_client(URL, user)
        assert taken == documents.MAX_CONCURRENT_FETCHES
        assert not web.resolved
    finally:
        documents._fetch_slots.release(taken)
    refresh_client(URL, user)
    assert documents._fetch_slots._value == documents.MAX_CONCURRENT_FETCHES  # type: ignore[attr-defined]


def test_a_fetch_slot_is_released_after_any_outcome(
    web: DocumentServer, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(documents, "make_fetcher", broken)
    with pytest.raises(RuntimeError):
        refresh_client(URL, user)
    assert documents._fetch_slots._value == documents.MAX_CONCURRENT_FETCHES  # type: ignore[attr-defined]


def test_a_document_does_not_replace_a_client_made_by_an_operator(web: DocumentServer, user: Any) -> None:
    Application.objects.create(
        client_id=URL,
        name="ours",
        redirect_uris="https://ours.example/cb",
        client_type="confidential",
        authorization_grant_type="authorization-code",
    )
    refresh_client(URL, user)
    assert not web.resolved
    assert (the_client().name, the_client().client_type) == ("ours", "confidential")
    said = ClientMetadata(name="theirs", redirect_uris=("https://evil.example/",))
    assert clients.save_document_client(URL, said, digest="", expires=None).name == "ours"
    assert the_client().redirect_uris == "https://ours.example/cb"


def test_a_pinned_client_is_not_fetched(web: DocumentServer, user: Any) -> None:
    body = document(URL, client_name="Pinned").split(b"\r\n\r\n", 1)[1]
    documents.pin_document(URL, body)
    refresh_client(URL, user)
    assert not web.resolved
    assert the_client().name == "Pinned"


def test_simultaneous_first_requests_create_one_client(
    web: DocumentServer, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh_client(URL, user)
    first = the_client()
    seen: list[Any] = []

    def find_nothing(*args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs)
        raise IntegrityError

    monkeypatch.setattr(Application, "save", find_nothing)
    said = ClientMetadata(name="A client", redirect_uris=("https://client.example/cb",))
    assert clients.save_document_client(URL, said, digest="", expires=None).pk == first.pk
    assert len(seen) == 1


def test_an_id_that_is_no_https_url_is_ignored(web: DocumentServer, user: Any, subtests: pytest.Subtests) -> None:
    for client_id in ("", "abc", "http://client.example/c.json", "\x00", "https", "urn:x", "a" * 5000, "\ud800"):
        with subtests.test(client_id=client_id), rolled_back():
            refresh_client(client_id, user)
            assert not web.resolved


IMPOSSIBLE_URLS: list[str] = [
    "https://client.example/\x00",
    "https://client.example/\ud800",
    "https://client.example/" + "a" * 300,
    "https://client.example/c.json?x",
    "https://127.0.0.1/c.json",
    "HTTPS://client.example/c.json",
    "https://",
]


def test_an_invalid_document_url_is_refused(web: DocumentServer, user: Any, subtests: pytest.Subtests) -> None:
    for client_id in IMPOSSIBLE_URLS:
        with subtests.test(client_id=client_id), rolled_back():
            with pytest.raises(ClientDocumentUnavailable):
                refresh_client(client_id, user)
            assert not web.resolved


def test_documents_can_be_switched_off(web: DocumentServer, user: Any) -> None:
    with override_settings(MCP={"AUTH": "none", "OAUTH": {"CLIENT_METADATA_DOCUMENTS": False}}):
        with pytest.raises(ClientDocumentUnavailable):
            refresh_client(URL, user)
        documents.pin_document(URL, document(URL).split(b"\r\n\r\n", 1)[1])
        refresh_client(URL, user)
    assert not web.resolved


def test_only_hosts_of_the_settings_are_fetched_from(web: DocumentServer, user: Any) -> None:
    settings = {"AUTH": "none", "OAUTH": {"DOCUMENT_HOSTS": ["claude.ai"]}}
    with override_settings(MCP=settings), pytest.raises(ClientDocumentUnavailable):
        refresh_client(URL, user)
    assert not web.resolved


def refresh_view(request: Any) -> HttpResponse:
    refresh_client(request.GET["client_id"], get_user_model().objects.get())
    return HttpResponse(the_client().name)


urlpatterns = [path("asks", refresh_view)]


@pytest.mark.urls(__name__)
async def test_a_document_is_fetched_under_asgi_while_the_loop_serves_others(web: DocumentServer, user: Any) -> None:
    responses = await asyncio.gather(*(AsyncClient().get("/asks", {"client_id": URL}) for _ in range(2)))
    assert [response.content for response in responses] == [b"A client"] * 2


def test_the_number_of_clients_is_limited(web: DocumentServer, user: Any) -> None:
    with override_settings(MCP={"AUTH": "none", "OAUTH": {"MOST_CLIENTS": 1}}):
        clients.register_client(ClientMetadata(name="x", redirect_uris=("https://x.example/",)), address=None)
        with pytest.raises(ClientDocumentUnavailable):
            refresh_client(URL, user)
    assert not Application.objects.filter(client_id=URL).exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("known", [False, True], ids=["new", "due"])
def test_users_with_simultaneous_requests_share_one_client(
    web: DocumentServer, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    people = [get_user_model().objects.create(username=f"user {n}") for n in range(4)]
    if known:
        refresh_client(URL, people[0])
        expire()
    met, real, problems = threading.Barrier(len(people)), clients.save_document_client, []

    def keep(*args: Any, **kwargs: Any) -> Any:
        met.wait(WAIT_SECONDS)
        return real(*args, **kwargs)

    def ask(person: Any) -> None:
        try:
            refresh_client(URL, person)
        except Exception as problem:
            problems.append(problem)
        finally:
            connections.close_all()

    monkeypatch.setattr(clients, "save_document_client", keep)
    threads = [threading.Thread(target=ask, args=[person]) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not problems
    assert Application.objects.filter(client_id=URL).count() == 1
    assert ClientProfile.objects.count() == 1
