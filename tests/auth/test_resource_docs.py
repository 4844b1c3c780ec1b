"""The examples of docs/protect/protected-resources.md, run."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import override_settings
from rest_framework.test import APIRequestFactory

from mcp_django import conf
from mcp_django.auth.requests import AuthRequest
from mcp_django.models import PersonalAccessToken
from mcp_django.protocol.headers import Headers
from tests.repository.pages import ROOT, python_blocks

PAGE = ROOT / "docs" / "protect" / "protected-resources.md"


def shown(word: str) -> dict[str, Any]:
    """The names that the first example with `word` in it defines."""
    block = next(block for block in python_blocks(PAGE) if word in block)
    names: dict[str, Any] = {}
    exec(compile(block, PAGE.name, "exec"), names)
    return names


def test_the_settings_of_the_examples_are_valid(subtests: pytest.Subtests) -> None:
    for word in ("ORIGIN", "SESSION_SCOPES"):
        with subtests.test(word=word), override_settings(MCP=shown(word)["MCP"]):
            assert conf.get_problems() == []


def test_the_urls_contain_endpoint_and_metadata() -> None:
    assert len(shown("urlpatterns")["urlpatterns"]) == 2


def test_the_function_of_the_request_requires_scopes_by_tenant() -> None:
    found = shown("def required_scopes")["required_scopes"]
    assert found(AuthRequest(Headers(), kwargs={"tenant": "acme"})) == ["acme:read"]


@pytest.mark.django_db
def test_the_suspended_user_is_invalidated() -> None:
    user = User.objects.create_user("alice")
    shown("def suspend")["suspend"](user)
    assert not User.objects.get().is_active


@pytest.mark.django_db
def test_the_view_accepts_a_token_with_the_scope() -> None:
    user = User.objects.create_user("alice")
    _, token = PersonalAccessToken.issue(user=user, name="one", scopes=["shop:read"], expires=None)
    request = APIRequestFactory().get("/orders", HTTP_AUTHORIZATION=f"Bearer {token}")
    with override_settings(MCP={"AUTH": "token"}):
        reply = shown("class OrderView")["OrderView"].as_view()(request)
    assert reply.data == {"by": "alice", "scopes": "shop:read"}
