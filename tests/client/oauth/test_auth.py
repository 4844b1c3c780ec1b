"""Tokens of the project itself: client credentials with a secret and with a key."""

import base64
import json
from typing import Any

import httpx
import httpx2
import pytest
from asgiref.sync import async_to_sync
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.auth.models import User

from mcp_django.client.errors import AuthorizationNeeded
from mcp_django.client.oauth.auth import create_auth
from mcp_django.client.oauth.http import AuthorizationFailed
from mcp_django.client.oauth.token_store import TokenRow
from mcp_django.models import ClientToken
from tests.client.authority import ISSUER, SERVER, Authority, settings
from tests.client.oauth.test_renewal import Server, call

pytestmark = pytest.mark.django_db
OWN = {"type": "client_credentials", "client_id": "ours", "issuer": ISSUER}
SECRET = OWN | {"client_secret": "s3cret"}


def credential(authority: Authority, user: Any = None, **auth: Any) -> httpx2.Auth:
    found = create_auth(settings(**auth), user, http_client=authority.outgoing())
    assert found is not None
    return found


def test_a_token_needs_no_user_and_is_shared() -> None:
    authority, server = Authority(), Server("a0-s3cret")
    assert async_to_sync(call)(credential(authority, **SECRET), server) == 200
    assert async_to_sync(call)(credential(authority, **SECRET), server) == 200
    (form,) = authority.forms
    assert (form["grant_type"], form["resource"]) == ("client_credentials", SERVER)
    given = authority.headers[0]["authorization"].removeprefix("Basic ")
    assert base64.b64decode(given) == b"ours:s3cret"
    row = ClientToken.objects.get()
    assert (row.user, row.issuer) == (None, ISSUER)
    assert authority.registrations == 0


def test_the_settings_may_put_the_secret_into_the_form() -> None:
    authority = Authority()
    async_to_sync(call)(credential(authority, **SECRET, client_auth="post"), Server("a0-s3cret"))
    assert authority.forms[0]["client_secret"] == "s3cret"
    assert "authorization" not in authority.headers[0]


def test_the_token_is_the_same_for_every_caller() -> None:
    authority, ada = Authority(), User.objects.create_user("ada")
    async_to_sync(call)(credential(authority, ada, **SECRET), Server("a0-s3cret"))
    assert ClientToken.objects.get().user is None


def test_scopes_of_the_settings_are_asked_for() -> None:
    authority = Authority()
    async_to_sync(call)(credential(authority, **SECRET, scopes=("a", "b")), Server("a0-s3cret"))
    assert authority.forms[0]["scope"] == "a b"


def test_a_refused_token_is_replaced() -> None:
    authority = Authority()
    refusal = httpx2.Response(401, headers={"WWW-Authenticate": authority.challenge})
    server = Server("a1-s3cret", refusal=refusal)
    row = TokenRow(settings(**SECRET))
    async_to_sync(call)(credential(authority, **SECRET), Server("a0-s3cret"))
    authority.refreshes = 1
    assert async_to_sync(call)(credential(authority, **SECRET), server) == 200
    assert server.shown == ["a0-s3cret", "a1-s3cret"]
    held = row.read()
    assert held is not None
    assert held.generation == 2


def test_a_key_signs_for_the_issuer_alone() -> None:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    authority = Authority()
    auth = credential(authority, **OWN, private_key=pem)
    assert async_to_sync(call)(auth, Server("a0-s3cret")) == 200
    (form,) = authority.forms
    head, claims, _signature = form["client_assertion"].split(".")
    said = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert json.loads(base64.urlsafe_b64decode(head + "=="))["alg"] == "RS256"
    assert (said["iss"], said["sub"], said["aud"]) == ("ours", "ours", ISSUER)
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert pem not in repr(ClientToken.objects.values())


def test_an_invalid_key_is_reported_without_the_key() -> None:
    with pytest.raises(AuthorizationFailed, match="PRIVATE_KEY") as caught:
        async_to_sync(call)(credential(Authority(), **OWN, private_key="s3cret"), Server())
    assert "s3cret" not in str(caught.value)


def test_the_secret_is_sent_to_its_issuer_only(subtests: pytest.Subtests) -> None:
    for change in [
        {"resource": {"authorization_servers": ["https://evil.example"]}},
        {"metadata": {"issuer": "https://evil.example"}},
        {"metadata": {"token_endpoint": "http://id.example/token"}},
    ]:
        with subtests.test(change=change):
            authority = Authority()
            authority.resource |= change.get("resource", {})
            authority.metadata |= change.get("metadata", {})
            authority.other["https://evil.example/.well-known/oauth-authorization-server"] = (
                lambda request, authority=authority: httpx.Response(
                    200, json=authority.metadata | {"issuer": "https://evil.example"}
                )
            )
            with pytest.raises(AuthorizationFailed):
                async_to_sync(call)(credential(authority, **SECRET), Server())
            assert authority.forms == []


def test_refused_credentials_are_an_error_for_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority()
    authority.other[f"{ISSUER}/token"] = lambda request: httpx.Response(
        401, json={"error": "invalid_client", "error_description": "s3cret"}
    )
    with pytest.raises(AuthorizationFailed) as caught:
        async_to_sync(call)(credential(authority, **SECRET), Server())
    assert not isinstance(caught.value, AuthorizationNeeded)
    assert "s3cret" not in str(caught.value) + caplog.text
