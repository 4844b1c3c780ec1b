"""Metadata of the authorization server (RFC 8414)."""

from typing import Any

import pytest
from django.test import Client, override_settings

from mcp_django.contrib.oauth import oauth2_provider_settings
from tests.contrib.oauth import oauth_flow

pytestmark = pytest.mark.urls("tests.contrib.oauth.urls")
RFC_8414, OIDC = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


def get(path: str, **headers: Any) -> Any:
    return Client().get(path, secure=True, **headers)


def test_the_document_is_at_the_well_known_path(subtests: pytest.Subtests) -> None:
    for path in (RFC_8414, OIDC, RFC_8414 + "/"):
        with subtests.test(path=path):
            response = get(path)
            assert response.status_code == 200
            found = response.json()
            assert found["issuer"] == "https://testserver"
            assert found["authorization_response_iss_parameter_supported"] is True
            assert found["client_id_metadata_document_supported"] is True
            assert found["code_challenge_methods_supported"] == ["S256"]
            assert found["grant_types_supported"] == ["authorization_code", "refresh_token"]
            assert found["response_types_supported"] == ["code"]
            assert "none" in found["token_endpoint_auth_methods_supported"]
            assert "none" not in found["introspection_endpoint_auth_methods_supported"]
            assert found["scopes_supported"] == ["notes:read", "notes:write", "offline_access"]
            assert found["token_endpoint"] == "https://testserver/o/token/"
            assert found["registration_endpoint"] == "https://testserver/o/register/"
            assert found["revocation_endpoint"] == "https://testserver/o/revoke_token/"
            assert found["introspection_endpoint"] == "https://testserver/o/introspect/"
            assert None not in found.values()


def test_another_issuer_is_not_found(subtests: pytest.Subtests) -> None:
    for path in ("/tenant", "/o", "/mcp", "/..", "/%00", "/x/y"):
        for place in (RFC_8414, OIDC):
            with subtests.test(place=place, path=path):
                for url in (f"{place}{path}", f"{path}{place}"):
                    assert get(url).status_code == 404


def test_a_foreign_host_header_is_ignored(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    found = get(RFC_8414, HTTP_HOST="evil.example").json()
    assert not [value for value in found.values() if "evil" in str(value)]


def test_an_issuer_with_a_path_has_its_document_at_three_places() -> None:
    with override_settings(OAUTH2_PROVIDER=oauth2_provider_settings(issuer="https://testserver/auth")):
        for path in (f"{RFC_8414}/auth", f"{OIDC}/auth", f"/auth{OIDC}"):
            assert get(path).json()["issuer"] == "https://testserver/auth"
        for path in (RFC_8414, OIDC, f"{RFC_8414}/other"):
            assert get(path).status_code == 404


def test_disabled_features_are_not_advertised(settings: Any) -> None:
    off = {"DYNAMIC_REGISTRATION": False, "CLIENT_METADATA_DOCUMENTS": False}
    settings.MCP = {**oauth_flow.SETTINGS, "OAUTH": off}
    found = get(RFC_8414).json()
    assert "registration_endpoint" not in found
    assert found["client_id_metadata_document_supported"] is False


def test_any_origin_may_read_without_cookies(subtests: pytest.Subtests) -> None:
    for path in (RFC_8414, "/o/token/", "/o/revoke_token/", "/o/introspect/", "/token"):
        with subtests.test(path=path):
            response = Client().options(path, secure=True, HTTP_ORIGIN="https://inspector.example")
            assert response.status_code == 204
            assert response["Access-Control-Allow-Origin"] == "*"
            assert "authorization" in response["Access-Control-Allow-Headers"]
            assert "Access-Control-Allow-Credentials" not in response


def test_other_methods_are_refused() -> None:
    assert Client().post(RFC_8414, secure=True).status_code == 405
    assert Client().head(RFC_8414, secure=True).status_code == 200
