"""Behind a TLS proxy the project gets http, and sends clients https URLs only."""

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application

from mcp_django.asgi import mount
from mcp_django.contrib.oauth import oauth2_provider_settings
from tests.interaction import tokens
from tests.interaction.fixtures import _keep_test_connection_open
from tests.interaction.wire import Exchange, Reply, http_scope

__all__ = ["_keep_test_connection_open"]
pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]
ORIGIN = "https://mcp.example"
METADATA = "/.well-known/oauth-protected-resource/mcp"
DOORS = {"asgi": lambda: mount(get_asgi_application()), "view": get_asgi_application}
PING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture(autouse=True)
def _behind_a_proxy(settings: Any) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["mcp.example"]
    settings.MIDDLEWARE = ["django.middleware.security.SecurityMiddleware"]
    settings.OAUTH2_PROVIDER = oauth2_provider_settings(issuer=ORIGIN)
    settings.MCP = {
        "AUTH": ["oauth", "token"],
        "ORIGIN": ORIGIN,
        "SCOPES": {"notes:read": "Read notes"},
        "SERVERS": {"default": {"REQUIRED_SCOPES": ["notes:read"]}},
    }


@pytest.fixture(params=DOORS)
def app(request: pytest.FixtureRequest) -> Any:
    """Both doors."""
    return DOORS[request.param]()


async def ask(app: Any, method: str, path: str, body: bytes = b"", token: str | None = None) -> Reply:
    """Send a request as the proxy forwards it; return the response."""
    headers = {
        "host": "mcp.example",
        "x-forwarded-proto": "https",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **({} if token is None else {"authorization": f"Bearer {token}"}),
    }
    scope = http_scope(method, path, headers, client=("10.0.0.7", 50000))
    return await Exchange(app, scope, [body], lambda _: None).reply()


async def call(app: Any, token: str | None = None) -> Reply:
    return await ask(app, "POST", "/mcp", json.dumps(PING).encode(), token)


async def test_the_challenges_name_https_urls(app: Any) -> None:
    reply = await call(app)
    assert reply.status == 401
    assert f'resource_metadata="{ORIGIN}{METADATA}"' in reply.headers["www-authenticate"]
    user = await User.objects.acreate(username="ann")
    reply = await call(app, await sync_to_async(tokens.of_a_client)(user, ["offline_access"], "default"))
    assert reply.status == 403
    assert f'resource_metadata="{ORIGIN}{METADATA}"' in reply.headers["www-authenticate"]


async def test_the_metadata_names_https_alone(app: Any) -> None:
    resource = json.loads((await ask(app, "GET", METADATA)).body)
    assert resource["resource"] == f"{ORIGIN}/mcp"
    assert resource["authorization_servers"] == [ORIGIN]
    reply = await ask(app, "GET", "/.well-known/oauth-authorization-server")
    assert reply.status == 200
    assert json.loads(reply.body)["issuer"] == ORIGIN
    assert b"http://" not in reply.body


async def test_a_token_for_the_https_resource_is_accepted(app: Any) -> None:
    user = await User.objects.acreate(username="ann")
    good = await sync_to_async(tokens.of_a_client)(user, ["notes:read"], "default")
    assert (await call(app, good)).status in (200, 400)
