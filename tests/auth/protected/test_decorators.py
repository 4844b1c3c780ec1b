"""Plain views of Django with the tokens of the endpoints."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.cache import cache
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory, override_settings

from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, AuthError
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.protected.decorators import bearer_required
from mcp_django.auth.resource import ProtectedResource
from mcp_django.models import PersonalAccessToken
from tests.support.savepoints import rolled_back

API = "https://shop.example/orders"
METADATA = "https://shop.example/.well-known/oauth-protected-resource/orders"
MODULE = "tests.auth.protected.test_decorators"


async def verify(token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
    """A verifier whose tokens are the URL they were made for."""
    if token == "down":
        raise RuntimeError("no backend")
    if token == "nobody":
        return DjangoPrincipal(issuer="tests", subject="machine", scopes=frozenset({"shop:read"}))
    if not resource.matches_audience(token.replace("_", ":")):
        raise AuthError("invalid_token", INVALID_MESSAGE)
    user = await User.objects.aget(username="alice")
    return DjangoPrincipal(issuer="tests", subject="alice", user=user, scopes=frozenset({"shop:read"}))


def describe_user(request: Any) -> JsonResponse:
    return JsonResponse({"by": request.user.get_username(), "scopes": sorted(request.principal.scopes)})


@bearer_required(resource=API, scopes=["shop:read"], metadata_url=METADATA)
def plain(request: HttpRequest, number: int = 0) -> JsonResponse:
    """A plain view."""
    return describe_user(request)


@bearer_required(resource=API, scopes=["shop:read"], metadata_url=METADATA)
async def asynchronous(request: HttpRequest, number: int = 0) -> JsonResponse:
    """An async one."""
    return describe_user(request)


@bearer_required(resource=API, scopes=["shop:write"], metadata_url=METADATA)
def writing(request: HttpRequest) -> JsonResponse:
    """One that takes more."""
    return describe_user(request)


@pytest.fixture(autouse=True)
def _configured(db: None) -> Iterator[None]:
    cache.clear()
    User.objects.create_user("alice")
    with override_settings(MCP={"AUTH": ["token", f"{MODULE}.verify"]}):
        yield


def named(url: str) -> str:
    """The token for a resource; a token cannot contain a colon."""
    return url.replace(":", "_")


VIEWS = (plain, asynchronous)


def ask(view: Any, token: str | None = None) -> Any:
    """Request the view; return its response."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    request = RequestFactory().post("/orders", headers=headers)
    return async_to_sync(view)(request) if view is asynchronous else view(request)


def test_a_token_for_the_view_sets_its_user_and_scopes(subtests: pytest.Subtests) -> None:
    for view in VIEWS:
        with subtests.test(view=view):
            reply = ask(view, named(API))
            assert json.loads(reply.content) == {"by": "alice", "scopes": ["shop:read"]}


REFUSED: list[tuple[str | None, int, str | None]] = [
    (None, 401, None),
    (named("https://shop.example/mcp"), 401, "invalid_token"),
    ("nobody", 401, "invalid_token"),
    ("a" * 9000, 400, "invalid_request"),
]


def test_other_bearers_are_refused_with_a_challenge(subtests: pytest.Subtests) -> None:
    for view in VIEWS:
        for token, status, error in REFUSED:
            with subtests.test(view=view, token=token), rolled_back():
                reply = ask(view, token)
                challenge = reply.headers["WWW-Authenticate"]
                assert reply.status_code == status
                assert f'resource_metadata="{METADATA}"' in challenge
                assert (f'error="{error}"' in challenge) if error else ("error" not in challenge)
                assert reply.headers["Cache-Control"] == "no-store"
                assert json.loads(reply.content)["detail"]


def test_a_missing_scope_is_named() -> None:
    reply = ask(writing, named(API))
    assert reply.status_code == 403
    assert 'scope="shop:write"' in reply.headers["WWW-Authenticate"]


def test_an_unavailable_backend_does_not_invalidate_the_token(caplog: pytest.LogCaptureFixture) -> None:
    reply = ask(plain, "down")
    assert (reply.status_code, bool(reply.headers["Retry-After"])) == (503, True)
    assert "backend" not in reply.content.decode()


def test_an_address_with_too_many_invalid_tokens_is_refused() -> None:
    with override_settings(MCP={"AUTH": [f"{MODULE}.verify"], "RATES": {"TOKEN_FAILURES": "1/h"}}):
        statuses = [ask(plain, f"wrong{number}").status_code for number in range(3)]
    assert statuses[-1] == 429


def test_a_cached_token_is_served_at_a_refused_address() -> None:
    with override_settings(MCP={"AUTH": [f"{MODULE}.verify"], "RATES": {"TOKEN_FAILURES": "1/h"}}):
        statuses = [ask(plain, token).status_code for token in (named(API), "wrong1", "wrong2", named(API))]
    assert statuses == [200, 401, 429, 200]


def test_a_token_is_required_under_any_settings(subtests: pytest.Subtests) -> None:
    for mcp in ({"AUTH": "none"}, {}):
        with subtests.test(mcp=mcp), override_settings(MCP=mcp, DEBUG=True):
            assert ask(plain).status_code in (401, 403)


def test_personal_tokens_are_valid_for_their_resource() -> None:
    user = User.objects.get()
    for server, status in (("", 200), ("api", 200), ("default", 401)):
        _, token = PersonalAccessToken.issue(user=user, name="one", scopes=["shop:read"], expires=None, audience=server)
        assert ask(plain, token).status_code == status


def test_no_csrf_token_is_needed() -> None:
    assert plain.csrf_exempt is True  # type: ignore[attr-defined]
    assert plain.__name__ == "plain"


def test_invalid_options_are_refused_at_decoration() -> None:
    with pytest.raises(ValueError, match="not a valid URL"):
        bearer_required(resource="shop")
    with pytest.raises(TypeError, match="list"):
        bearer_required(scopes="shop:read")


@bearer_required(resource=API, scopes=["shop:read"], require_user=False)
def for_machines(request: HttpRequest) -> JsonResponse:
    """A view that needs no user."""
    return JsonResponse({"by": request.principal.subject, "anonymous": request.user.is_anonymous})  # type: ignore[attr-defined]


def test_a_view_may_admit_tokens_of_machines() -> None:
    request = RequestFactory().get("/", headers={"Authorization": "Bearer nobody"})
    assert plain(request).status_code == 401
    answer = for_machines(request)
    assert (answer.status_code, json.loads(answer.content)) == (200, {"by": "machine", "anonymous": True})
