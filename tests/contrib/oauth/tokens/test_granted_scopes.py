"""Grants of stored work: they outlive their tokens, and end with a revocation."""

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.principal import DjangoPrincipal, run_in_thread
from mcp_django.auth.requests import AuthRequest
from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.flows.revocation import revoke_client, revoke_token, revoke_user, withdraw_access
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model
from mcp_django.protocol.headers import Headers
from mcp_django.wiring import create_authenticator
from tests.contrib.oauth import oauth_flow
from tests.contrib.oauth.oauth_flow import create_client, create_user, obtain_tokens, post, read_json, refresh
from tests.support.clock import Clock
from tests.support.savepoints import rolled_back

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]
BOTH = "notes:read notes:write"


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


def authenticate(token: str) -> DjangoPrincipal:
    request = AuthRequest(Headers([(b"authorization", f"Bearer {token}".encode())]))
    return async_to_sync(create_authenticator("default").authenticate)(request)


def reload(principal: DjangoPrincipal) -> frozenset[str]:
    return async_to_sync(create_authenticator("default").reload)(principal, run_in_thread).scopes


def test_an_expired_access_token_ends_nothing(clock: Clock) -> None:
    app, user = create_client(), create_user()
    tokens = obtain_tokens(app, user, scopes=BOTH)
    principal = authenticate(tokens["access_token"])
    clock.move(tokens["expires_in"] + 60)
    assert reload(principal) == {"notes:read", "notes:write"}
    refreshed = read_json(refresh(app, tokens["refresh_token"]))
    get_access_token_model().objects.filter(expires__lt=timezone.now()).delete()  # as `cleartokens` does
    assert reload(principal) == {"notes:read", "notes:write"}
    read_json(refresh(app, refreshed["refresh_token"], scope="notes:read"))
    assert reload(principal) == {"notes:read"}


def test_a_grant_that_is_not_refreshed_ends(clock: Clock) -> None:
    principal = authenticate(obtain_tokens(create_client(), create_user())["access_token"])
    clock.move(get_settings().refresh_token + 60)
    with pytest.raises(AuthError):
        reload(principal)


def block(app: Any, user: Any, token: str) -> None:
    ClientProfile.objects.filter(application=app).update(blocked=True)


def forbid_resource(app: Any, user: Any, token: str) -> None:
    ClientProfile.objects.filter(application=app).update(allowed_resources=["https://testserver/other"])


def revoke_by_client(app: Any, user: Any, token: str) -> None:
    revoke_token(token, app)


@pytest.mark.parametrize(
    "revoke",
    [
        revoke_by_client,
        lambda app, user, token: withdraw_access(user, app),
        lambda app, user, token: revoke_client(app),
        lambda app, user, token: revoke_user(user),
        lambda app, user, token: app.delete(),
        block,
        forbid_resource,
    ],
)
def test_a_revocation_ends_the_grant(revoke: Callable[[Any, Any, str], None]) -> None:
    app, user = create_client(), create_user()
    tokens = obtain_tokens(app, user, scopes=BOTH)
    principal = authenticate(tokens["access_token"])
    revoke(app, user, tokens["refresh_token"])
    with pytest.raises(AuthError):
        reload(principal)


def test_another_grant_of_the_same_client_does_not_replace_a_revoked_one() -> None:
    app, user = create_client(), create_user()
    principal = authenticate(obtain_tokens(app, user)["access_token"])
    other = obtain_tokens(app, user, scopes=BOTH)
    revoke_token(other["refresh_token"], app)
    assert reload(principal) == {"notes:read"}
    obtain_tokens(app, user, scopes=BOTH)
    assert reload(principal) == {"notes:read"}
    with pytest.raises(AuthError):
        reload(authenticate_and_revoke(app, user))


def authenticate_and_revoke(app: Any, user: Any) -> DjangoPrincipal:
    tokens = obtain_tokens(app, user)
    principal = authenticate(tokens["access_token"])
    revoke_token(tokens["refresh_token"], app)
    return principal


def test_scopes_withheld_by_an_operator_are_lost() -> None:
    app = create_client()
    principal = authenticate(obtain_tokens(app, create_user(), scopes=BOTH)["access_token"])
    ClientProfile.objects.filter(application=app).update(allowed_scopes=["notes:read"])
    assert reload(principal) == {"notes:read"}


def test_client_credentials_end_with_the_trust(clock: Clock) -> None:
    app, secret = clients.create_client("robot", service_user=create_user("robot"))
    form = {"grant_type": "client_credentials", "scope": BOTH, "client_id": app.client_id, "client_secret": secret}
    tokens = read_json(post("/o/token/", form))
    principal = authenticate(tokens["access_token"])
    with rolled_back():
        revoke_token(tokens["access_token"], app)
        with pytest.raises(AuthError):
            reload(principal)
    clock.move(tokens["expires_in"] + 60)
    get_access_token_model().objects.all().delete()  # as `cleartokens` does
    assert reload(principal) == {"notes:read", "notes:write"}
    ClientProfile.objects.update(trusted=False)
    with pytest.raises(AuthError):
        reload(principal)
