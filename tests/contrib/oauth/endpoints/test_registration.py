"""Dynamic client registration (RFC 7591), by clients and by strangers."""

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db import OperationalError
from django.test import AsyncClient, Client, override_settings
from django.urls import include, path
from oauth2_provider.models import AccessToken, Application

from mcp_django.contrib.oauth.clients.client_metadata import MAX_METADATA_BYTES
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.tokens.credentials import has_secret
from tests.contrib.oauth.clients.test_client_metadata import NOT_TAKEN, REAL
from tests.contrib.oauth.test_redirects import HOSTILE
from tests.support.savepoints import rolled_back

urlpatterns = [path("", include("mcp_django.contrib.oauth.urls"))]
pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]
URL = "/o/register/"
CALLBACK = "https://client.example/cb"


def send(body: Any, client: Client | None = None, kind: str = "application/json", **headers: Any) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", "surrogatepass")
    client = client or Client(raise_request_exception=True)
    return client.post(URL, raw, content_type=kind, **headers)


def register(**members: Any) -> Any:
    return send({"client_name": "A client", "redirect_uris": [CALLBACK], **members})


def test_a_real_client_registers(subtests: pytest.Subtests) -> None:
    for name in REAL:
        with subtests.test(name=name), rolled_back():
            response = send(REAL[name])
            told = response.json()
            assert response.status_code == 201, told
            application = Application.objects.get(client_id=told["client_id"])
            profile = ClientProfile.objects.get(application=application)
            assert told["redirect_uris"] == REAL[name]["redirect_uris"] == application.redirect_uris.split()
            assert told["token_endpoint_auth_method"] == "none"
            assert told["grant_types"] == ["authorization_code", "refresh_token"]
            assert None not in told.values()
            assert "client_secret" not in told
            assert application.client_type == Application.CLIENT_PUBLIC
            assert application.authorization_grant_type == Application.GRANT_AUTHORIZATION_CODE
            assert application.registration_source == Application.RegistrationSource.DCR
            assert not application.skip_authorization
            assert profile.source == ClientProfile.Source.REGISTERED
            assert profile.application_type == REAL[name].get("application_type", "")
            assert profile.requested_grants == REAL[name]["grant_types"]
            assert (profile.approved, profile.trusted, profile.service_user) == (False, False, None)


def test_each_registered_redirect_uri_is_allowed() -> None:
    for given in REAL.values():
        application = Application.objects.get(client_id=send(given).json()["client_id"])
        assert all(application.redirect_uri_allowed(uri) for uri in given["redirect_uris"])
        assert not application.redirect_uri_allowed("https://evil.example/cb")


def test_the_port_of_a_loopback_redirect_is_the_clients_to_choose_at_run_time() -> None:
    """RFC 8252, section 7.3."""
    uris = ["http://127.0.0.1:1234/cb", "http://localhost/cb", "http://[::1]/cb"]
    application = Application.objects.get(client_id=register(redirect_uris=uris).json()["client_id"])
    for uri in ("http://127.0.0.1:50000/cb", "http://localhost:50000/cb", "http://[::1]:50000/cb"):
        assert application.redirect_uri_allowed(uri)
    for uri in ("http://127.0.0.1:50000/other", "https://127.0.0.1:50000/cb", "http://127.0.0.2:50000/cb"):
        assert not application.redirect_uri_allowed(uri)


def test_a_confidential_client_gets_its_secret_with_its_expiry() -> None:
    response = register(token_endpoint_auth_method="client_secret_post")
    told = response.json()
    application = Application.objects.get(client_id=told["client_id"])
    assert has_secret(application, told["client_secret"])
    assert not has_secret(application, application.client_secret)
    assert told["client_secret"] not in application.client_secret
    assert told["client_secret_expires_at"] == 0
    assert told["client_id_issued_at"] == int(application.created.timestamp())
    assert told["token_endpoint_auth_method"] == "client_secret_post"
    assert application.client_type == Application.CLIENT_CONFIDENTIAL
    assert response["Cache-Control"] == "no-store"
    assert response["Content-Type"] == "application/json"


def test_a_public_client_gets_no_secret() -> None:
    told = register(token_endpoint_auth_method="none").json()
    application = Application.objects.get(client_id=told["client_id"])
    assert not any(has_secret(application, guess) for guess in ("", application.client_secret))


def test_the_application_type_is_returned() -> None:
    assert register(application_type="native").json()["application_type"] == "native"
    assert "application_type" not in register().json()


def test_no_registration_access_token_is_issued() -> None:
    told = register().json()
    assert "registration_access_token" not in told
    assert "registration_client_uri" not in told
    assert not AccessToken.objects.exists()


def test_a_client_without_the_code_grant_does_not_register(subtests: pytest.Subtests) -> None:
    for grant in ("client_credentials", "password", "implicit", "refresh_token"):
        with subtests.test(grant=grant), rolled_back():
            response = register(grant_types=[grant])
            assert (response.status_code, response.json()["error"]) == (400, "invalid_client_metadata")
            assert not Application.objects.exists()


def test_other_grant_types_are_not_registered() -> None:
    told = register(grant_types=["authorization_code", "client_credentials", "password"]).json()
    assert told["grant_types"] == ["authorization_code", "refresh_token"]
    application = Application.objects.get(client_id=told["client_id"])
    assert not application.allows_grant_type(Application.GRANT_CLIENT_CREDENTIALS, Application.GRANT_PASSWORD)


def test_a_hostile_redirect_uri_is_refused_next_to_a_valid_one(subtests: pytest.Subtests) -> None:
    for name in HOSTILE:
        with subtests.test(name=name), rolled_back():
            response = register(redirect_uris=[CALLBACK, HOSTILE[name]])
            assert response.status_code == 400
            assert response.json()["error"] in ("invalid_redirect_uri", "invalid_client_metadata")
            assert not Application.objects.exists()


def test_a_web_application_on_loopback_is_refused() -> None:
    response = register(application_type="web", redirect_uris=["http://127.0.0.1/cb"])
    assert (response.status_code, response.json()["error"]) == (400, "invalid_redirect_uri")


def test_malformed_json_is_a_clean_error(subtests: pytest.Subtests) -> None:
    for name in NOT_TAKEN:
        with subtests.test(name=name), rolled_back():
            response = send(NOT_TAKEN[name])
            assert (response.status_code, response.json()["error"]) == (400, "invalid_client_metadata")
            assert response["Cache-Control"] == "no-store"


ODD = [None, True, 0, -1, 1.5, 10**30, "", "x" * 5000, "\x00", "\ud800", [], {}, [[]], [None], {"a": []}, ["\x00"]]
MEMBERS = [
    "redirect_uris",
    "client_name",
    "grant_types",
    "response_types",
    "token_endpoint_auth_method",
    "token_endpoint_auth_methods_supported",
    "application_type",
    "client_uri",
    "logo_uri",
    "scope",
    "contacts",
    "jwks",
    "software_statement",
    "client_id",
    "client_secret",
]


def test_any_value_of_any_member_is_accepted_or_refused(subtests: pytest.Subtests) -> None:
    for member in MEMBERS:
        with subtests.test(member=member), rolled_back():
            for value in ODD:
                cache.clear()
                response = register(**{member: value})
                assert response.status_code in (201, 400), value
                assert response.json()


def test_a_client_does_not_choose_its_id_or_secret() -> None:
    told = register(client_id="https://claude.ai/oauth/mcp-oauth-client-metadata", client_secret="chosen").json()
    assert told["client_id"] != "https://claude.ai/oauth/mcp-oauth-client-metadata"
    assert told["client_secret"] != "chosen"


def test_a_body_is_16_kilobytes_at_most() -> None:
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10):
        assert register().status_code == 201
    assert send(b'{"client_name": "' + b"x" * MAX_METADATA_BYTES + b'"}').status_code == 400
    assert send(b"x" * 5_000_000).status_code == 400


def test_the_content_type_of_a_body_is_json(subtests: pytest.Subtests) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"):
        with subtests.test(kind=kind), rolled_back():
            response = send({"redirect_uris": [CALLBACK]}, kind=kind)
            assert (response.status_code, response.json()["error"]) == (400, "invalid_client_metadata")
            assert send({"redirect_uris": [CALLBACK]}, kind="application/json; charset=utf-8").status_code == 201


def test_other_methods_register_nothing(subtests: pytest.Subtests) -> None:
    for method in ("get", "put", "patch", "delete"):
        with subtests.test(method=method):
            response = getattr(Client(), method)(URL)
            assert (response.status_code, response["Allow"]) == (405, "POST, OPTIONS")
            assert response.json()["error"] == "invalid_request"


def test_any_origin_may_register_without_cookies() -> None:
    response = Client().options(URL, HTTP_ORIGIN="https://inspector.example")
    assert response.status_code == 204
    for found in (response, register(), send(b"x")):
        assert found["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in found


def test_clients_that_read_no_metadata_register_at_the_default_path(subtests: pytest.Subtests) -> None:
    """2025-03-26, basic/authorization, Fallbacks for Servers without Metadata Discovery."""
    for place in ("/register", "/register/", "/o/register"):
        with subtests.test(place=place), rolled_back():
            response = Client().post(place, json.dumps({"redirect_uris": [CALLBACK]}), content_type="application/json")
            assert response.status_code == 201


def test_a_database_failure_is_an_unavailable_response(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("secret words of the database")

    monkeypatch.setattr(ClientProfile.objects, "create", fails)
    response = register()
    assert (response.status_code, response.json()["error"]) == (503, "temporarily_unavailable")
    assert "secret" not in response.content.decode()
    assert not Application.objects.exists()


def test_a_registered_client_has_no_owner() -> None:
    user = get_user_model().objects.create_superuser("root")
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    told = send({"redirect_uris": [CALLBACK]}, client).json()
    assert Application.objects.get(client_id=told["client_id"]).user is None


def test_registrations_are_limited_per_address_and_hour() -> None:
    statuses = [register().status_code for _ in range(22)]
    assert statuses == [201] * 20 + [429] * 2
    refused = register()
    assert refused.json()["error"] == "temporarily_unavailable"
    assert 0 < int(refused["Retry-After"]) <= 7200
    assert send({"redirect_uris": [CALLBACK]}, REMOTE_ADDR="198.51.100.7").status_code == 201


def test_a_loopback_client_is_limited_by_address() -> None:
    register()
    assert ClientProfile.objects.get().created_ip == "127.0.0.1"


def test_refused_registrations_count_toward_the_limit() -> None:
    assert [send(b"x").status_code for _ in range(21)] == [400] * 20 + [429]


def test_a_client_cannot_choose_its_address(subtests: pytest.Subtests) -> None:
    """Behind a proxy that the settings do not name, all clients share one address."""
    for peer, kept in (("198.51.100.7", "198.51.100.7"), ("127.0.0.1", None)):
        with subtests.test(peer=peer), rolled_back():
            body = {"redirect_uris": [CALLBACK]}
            statuses = [
                send(body, REMOTE_ADDR=peer, HTTP_X_FORWARDED_FOR=f"203.0.113.{n}").status_code for n in range(1, 22)
            ]
            assert statuses == [201] * 20 + [429]
            assert set(ClientProfile.objects.values_list("created_ip", flat=True)) == {kept}


def test_trusted_proxies_provide_the_address_of_the_client(settings: Any) -> None:
    settings.MCP = {"RATES": {"NUM_PROXIES": 1, "REGISTRATION": "1/h"}}
    body, chain = {"redirect_uris": [CALLBACK]}, "203.0.113.9, 198.51.100.{}"
    statuses = [send(body, HTTP_X_FORWARDED_FOR=chain.format(n)).status_code for n in (1, 1, 2)]
    assert statuses == [201, 429, 201]
    assert set(ClientProfile.objects.values_list("created_ip", flat=True)) == {"198.51.100.1", "198.51.100.2"}


def test_addresses_of_one_network_share_a_limit() -> None:
    statuses = [
        send({"redirect_uris": [CALLBACK]}, REMOTE_ADDR=f"2001:db8:1:2::{n:x}").status_code for n in range(1, 22)
    ]
    assert statuses[-1] == 429
    assert set(ClientProfile.objects.values_list("created_ip", flat=True)) == {"2001:db8:1:2::"}


def test_a_name_is_kept_as_printable_text(subtests: pytest.Subtests) -> None:
    for name in ("<script>alert(1)</script>", "\u202eedualC", "a\x07b", "ünï 😀", "שלום"):
        with subtests.test(name=name), rolled_back():
            told = register(client_name=name).json()
            kept = Application.objects.get(client_id=told["client_id"]).name
            assert kept == told["client_name"]
            assert kept.isprintable()
            assert "\u202e" not in kept


def test_registration_can_be_switched_off() -> None:
    with override_settings(MCP={"OAUTH": {"DYNAMIC_REGISTRATION": False}}):
        assert register().status_code == 404
        assert Client().get(URL).status_code == 404
    assert not Application.objects.exists()


async def test_registration_works_under_asgi() -> None:
    body = json.dumps({"redirect_uris": [CALLBACK]})
    response = await AsyncClient().post(URL, body, content_type="application/json")
    assert response.status_code == 201
    response = await AsyncClient().post(URL, "x" * 50_000, content_type="application/json")
    assert response.status_code == 400
