"""Views of Django REST framework with the tokens of an identity provider."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from mcp_django.contrib.rest.access.bearer import BearerAuthentication
from tests.auth.external_issuer import linked
from tests.auth.identity_provider import AUDIENCE, Provider, serving

pytestmark = pytest.mark.django_db

API = "https://shop.example/api"


class Authentication(BearerAuthentication):
    resource = API


class View(APIView):
    authentication_classes = [Authentication]
    permission_classes = [IsAuthenticated]

    def get(self, request: Any) -> Response:
        """Return the user and the scopes."""
        return Response({"user": request.user.get_username(), "scope": request.auth.scope})


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving() as provider:
        entry = {"ISSUER": provider.issuer, "JWKS_URI": f"{provider.origin}/keys", "AUDIENCES": {"api": ["api://shop"]}}
        with override_settings(MCP={"AUTH": "external", "ORIGIN": "https://shop.example", "ISSUERS": [entry]}):
            yield provider


def ask(token: str) -> Any:
    return View.as_view()(APIRequestFactory().get("/api", HTTP_AUTHORIZATION=f"Bearer {token}"))


def test_tokens_are_accepted_by_their_audience_only(provider: Provider) -> None:
    linked(provider)
    for audience in (API, f"{API}/", "api://shop"):
        answer = ask(provider.token(aud=audience))
        assert (answer.status_code, answer.data) == (200, {"user": "ada", "scope": "a b"})

    answer = ask(provider.token(aud=AUDIENCE))
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer["www-authenticate"]


def test_an_unavailable_provider_is_503_without_a_challenge(provider: Provider) -> None:
    provider.answers["/keys"] = lambda: (500, {}, {})
    answer = ask(provider.token(aud=API))
    assert (answer.status_code, answer.has_header("www-authenticate")) == (503, False)
    assert int(answer["retry-after"]) > 0
