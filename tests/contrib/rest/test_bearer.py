"""Views of Django REST framework with the tokens of the endpoints."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, AuthError
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.contrib.rest.access.bearer import BearerAuthentication
from mcp_django.contrib.rest.access.permissions import HasScopes
from mcp_django.models import PersonalAccessToken
from tests.support.savepoints import rolled_back

API = "https://mcp.example/api"
METADATA = "https://mcp.example/.well-known/oauth-protected-resource/api"
MODULE = "tests.contrib.rest.test_bearer"


async def verify(token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
    """A verifier whose tokens are the URL they were made for."""
    if token == "down":
        raise RuntimeError("no backend")
    if token == "nobody":
        return DjangoPrincipal(issuer="tests", subject="machine")
    if not resource.matches_audience(token.replace("_", ":")):
        raise AuthError("invalid_token", INVALID_MESSAGE)
    user = await User.objects.aget(username="alice")
    return DjangoPrincipal(issuer="tests", subject="alice", user=user, scopes=frozenset({"shop:read"}))


class Authentication(BearerAuthentication):
    resource = API
    metadata_url = METADATA


class View(APIView):
    authentication_classes = [Authentication, SessionAuthentication]
    permission_classes: list[Any] = [IsAuthenticated]

    def get(self, request: Any) -> Response:
        """Return the user and the scopes."""
        scope = getattr(request.auth, "scope", None)
        return Response({"user": request.user.get_username(), "scope": scope, "auth": repr(request.auth)})


@pytest.fixture(autouse=True)
def _configured(db: None) -> Iterator[None]:
    User.objects.create_user("alice")
    with override_settings(MCP={"AUTH": ["token", f"{MODULE}.verify"]}):
        yield


def ask(token: str | None = None, view: Any = View, **headers: str) -> Any:
    if token is not None:
        headers["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    return view.as_view()(APIRequestFactory().get("/api", **headers))


def named(url: str) -> str:
    """Build the token for a resource without colons, which a token must not contain."""
    return url.replace(":", "_")


def test_a_token_for_the_api_is_its_user_with_its_scopes() -> None:
    reply = ask(named(API))
    assert reply.status_code == 200
    assert (reply.data["user"], reply.data["scope"]) == ("alice", "shop:read")
    assert named(API) not in reply.data["auth"]


def test_a_token_for_something_else_is_refused_with_a_challenge(subtests: pytest.Subtests) -> None:
    for url in ("https://mcp.example/mcp", "https://mcp.example", "https://mcp.example/api/sub"):
        with subtests.test(url=url), rolled_back():
            reply = ask(named(url))
            assert reply.status_code == 401
            assert reply.headers["WWW-Authenticate"].startswith('Bearer error="invalid_token"')
            assert f'resource_metadata="{METADATA}"' in reply.headers["WWW-Authenticate"]


def test_an_invalid_token_is_not_passed_to_the_next_authenticator() -> None:
    class Next(SessionAuthentication):
        def authenticate(self, request: Any) -> Any:
            raise AssertionError("asked")

    class Both(View):
        authentication_classes = [Authentication, Next]

    assert ask("wrong", Both).status_code == 401


def test_malformed_authorization_headers_are_ignored(subtests: pytest.Subtests) -> None:
    for header in (None, "Basic YTpi", "", "BearerX abc"):
        with subtests.test(header=header), rolled_back():
            reply = ask(**({} if header is None else {"HTTP_AUTHORIZATION": header}))
            assert reply.status_code == 401
            assert "error=" not in reply.headers["WWW-Authenticate"]
            assert reply.headers["WWW-Authenticate"] == f'Bearer resource_metadata="{METADATA}"'


def test_malformed_tokens_never_cause_a_server_error(subtests: pytest.Subtests) -> None:
    for header, status in (
        ("Bearer", 401),
        ("Bearer a b", 401),
        ("Bearer \u20ac", 401),
        ("Bearer " + "a" * 9000, 400),
        ("Bearer down", 503),
    ):
        with subtests.test(header=header, status=status), rolled_back():
            assert ask(HTTP_AUTHORIZATION=header).status_code == status


def test_a_token_without_a_user_is_refused() -> None:
    assert ask("nobody").status_code == 401


def test_personal_tokens_are_valid_for_their_resource_only() -> None:
    user = User.objects.get()
    for audience, status in (("", 200), ("api", 200), ("default", 401)):
        _, token = PersonalAccessToken.issue(user=user, name="one", audience=audience, expires=None)
        assert ask(token).status_code == status
    row, token = PersonalAccessToken.issue(user=user, name="one", expires=None)
    assert ask(token).status_code == 200
    row.revoke()
    assert ask(token).status_code == 401


def test_a_deactivated_user_is_refused_at_once() -> None:
    user = User.objects.get()
    _, token = PersonalAccessToken.issue(user=user, name="one", expires=None)
    assert ask(token).status_code == 200
    user.is_active = False
    user.save()
    assert ask(token).status_code == 401


def test_a_challenge_names_all_required_scopes() -> None:
    class Base(Authentication):
        scopes = ("shop:read",)

    class Write(View):
        authentication_classes = [Base]
        permission_classes = [HasScopes("shop:write", "shop:admin")]

    class Read(View):
        authentication_classes = [Base]
        permission_classes = [HasScopes]
        required_scopes = ("shop:read",)

    assert ask(named(API), Read).status_code == 200
    reply = ask(named(API), Write)
    assert reply.status_code == 403
    challenge = reply.headers["WWW-Authenticate"]
    assert challenge.startswith('Bearer error="insufficient_scope"')
    assert 'scope="shop:admin shop:read shop:write"' in challenge
    assert f'resource_metadata="{METADATA}"' in challenge


def test_missing_scopes_of_the_authenticator_are_checked_first() -> None:
    class More(Authentication):
        scopes = ("shop:more",)

    class Guarded(View):
        authentication_classes = [More]

    reply = ask(named(API), Guarded)
    assert reply.status_code == 403
    assert 'scope="shop:more"' in reply.headers["WWW-Authenticate"]


def test_a_request_without_a_token_has_no_scopes() -> None:
    class Open(View):
        authentication_classes = []
        permission_classes = [HasScopes("shop:read")]

    assert ask(view=Open).status_code == 403
    assert not HasScopes("a").has_permission(type("R", (), {"auth": None, "user": AnonymousUser()})(), None)


def test_a_resource_that_is_no_url_is_improperly_configured() -> None:
    class Wrong(Authentication):
        resource = "api"

    class Guarded(View):
        authentication_classes = [Wrong]

    with pytest.raises(ImproperlyConfigured):
        ask("abc", Guarded)


def test_failures_behind_a_proxy_throttle_one_client_only(subtests: pytest.Subtests) -> None:
    """With proxies that the settings do not name, clients have one address, so no client is throttled."""
    for proxies in (1, 0):
        with subtests.test(proxies=proxies), rolled_back():
            rates = {"TOKEN_FAILURES": "3/h", "NUM_PROXIES": proxies}
            with override_settings(MCP={"AUTH": ["token", f"{MODULE}.verify"], "RATES": rates}):
                found = [ask("wrong", HTTP_X_FORWARDED_FOR="198.51.100.77").status_code for _ in range(4)]
                assert found == [401, 401, 401, 429 if proxies else 401]
                assert ask("wrong", HTTP_X_FORWARDED_FOR="198.51.100.78").status_code == 401
