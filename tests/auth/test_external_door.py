"""Tokens of an identity provider at the endpoints: accepted ones, and the refusals that clients see."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import AsyncClient, Client, override_settings

from mcp_django import wiring
from mcp_django.auth.resource import ProtectedResource
from mcp_django.models import ExternalIdentity
from tests.auth.external_issuer import linked
from tests.auth.identity_provider import AUDIENCE, Provider, serving

pytestmark = pytest.mark.django_db

LIST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = "application/json, text/event-stream"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


@pytest.fixture
def site(provider: Provider) -> Iterator[None]:
    entry = {"ISSUER": provider.issuer, "JWKS_URI": f"{provider.origin}/keys", "LINK": ["create"]}
    asked = {
        "ISSUER": "https://opaque.example",
        "INTROSPECTION_URL": f"{provider.origin}/introspect",
        "CLIENT_ID": "shop",
        "CLIENT_SECRET": "s3cret",
    }
    mcp = {"AUTH": ["external", "token"], "ORIGIN": "https://shop.example", "ISSUERS": [entry, asked]}
    with override_settings(MCP=mcp):
        yield


def post(token: str | None = None) -> Any:
    headers = {"accept": ACCEPT, "host": "localhost"} | ({} if token is None else {"authorization": f"Bearer {token}"})
    return Client().post("/mcp", json.dumps(LIST), content_type="application/json", headers=headers)


@pytest.mark.usefixtures("site")
def test_a_token_of_a_provider_is_accepted_over_asgi_and_by_the_view(provider: Provider) -> None:
    linked(provider)
    token = provider.token()
    assert post(token).status_code == 200

    async def over_asgi() -> int:
        headers = {"accept": ACCEPT, "authorization": f"Bearer {token}"}
        client = AsyncClient()
        response = await client.post("/mcp", json.dumps(LIST), content_type="application/json", headers=headers)
        return response.status_code

    assert async_to_sync(over_asgi)() == 200
    assert provider.count() == 1


@pytest.mark.usefixtures("site")
def test_the_metadata_names_the_issuers(provider: Provider) -> None:
    resource = wiring.get_services().resource_registry.get("default")
    assert isinstance(resource, ProtectedResource)
    assert resource.uri == AUDIENCE
    assert resource.authorization_servers == (provider.issuer, "https://opaque.example")


@pytest.mark.usefixtures("site")
def test_an_invalid_token_of_a_provider_has_the_usual_challenge(provider: Provider) -> None:
    linked(provider)
    answers = [post(token) for token in (provider.token(exp=1), provider.token(sub=""), "eyJ.e30.x", "mcp_pat_x")]
    assert {answer.status_code for answer in answers} == {401}
    assert len({(answer["www-authenticate"], answer.content) for answer in answers}) == 1
    assert 'error="invalid_token"' in answers[0]["www-authenticate"]
    assert provider.forms == []


@pytest.mark.usefixtures("site")
def test_an_unavailable_provider_does_not_invalidate_a_token(provider: Provider) -> None:
    provider.answers["/keys"] = provider.answers["/introspect"] = lambda: (500, {}, {})
    for token in (provider.token(), "opaque"):
        answer = post(token)
        assert answer.status_code == 503
        assert int(answer["retry-after"]) > 0
        assert "www-authenticate" not in answer


@pytest.mark.usefixtures("site")
def test_a_deactivated_account_is_refused_at_once(provider: Provider) -> None:
    token = provider.token()
    assert post(token).status_code == 200
    user = User.objects.get()
    user.is_active = False
    user.save()
    assert post(token).status_code == 401


@pytest.mark.usefixtures("site")
def test_a_deleted_or_changed_identity_takes_effect_at_once(provider: Provider) -> None:
    ada, token = linked(provider), provider.token()
    assert post(token).status_code == 200
    identity = ExternalIdentity.objects.get(user=ada)
    identity.user = User.objects.create_user("eve", is_active=False)
    identity.save()
    assert post(token).status_code == 401
    identity.user = ada
    identity.save()
    assert post(token).status_code == 200
    identity.delete()
    # By LINK there is another account now, and nothing of the first one.
    assert post(token).status_code == 200
    assert ExternalIdentity.objects.get().user != ada


@pytest.mark.usefixtures("site")
def test_a_token_within_the_leeway_is_accepted(provider: Provider) -> None:
    assert post(provider.token(exp=int(time.time()) - 5)).status_code == 200
    assert post(provider.token(exp=int(time.time()) - 60)).status_code == 401


@override_settings(MCP={"AUTH": "external"})
def test_without_an_issuer_tokens_are_refused(provider: Provider) -> None:
    assert post(provider.token()).status_code == 401
    assert post().status_code == 401
