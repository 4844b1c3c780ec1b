"""Examples of endpoints: paths, streams, metadata, tokens and the memory."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import AsyncClient, override_settings
from django.urls import clear_url_caches, resolve

from mcp_django import Context, Server, tool
from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource
from mcp_django.server.primitives import registry
from mcp_django.testing import TestClient
from mcp_django.wiring import get_ports
from tests.server.client import HANDSHAKE, STATELESS
from tests.support.sse_decoder import Decoder

pytestmark = pytest.mark.django_db(transaction=True)
ORIGIN = "https://testserver"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
OWN = "io.modelcontextprotocol/"
INITIALIZE = {
    "protocolVersion": HANDSHAKE,
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}


class LocalClient(AsyncClient):
    """A client on this machine."""

    def _base_scope(self, **request: Any) -> dict[str, Any]:
        scope: dict[str, Any] = super()._base_scope(**request)
        return {
            **scope,
            "headers": [pair for pair in scope["headers"] if pair[0] != b"host"] + [(b"host", b"localhost")],
        }


@contextlib.contextmanager
def project(**mcp: Any) -> Iterator[AsyncClient]:
    """Apply these settings, with nothing registered yet, and give a client without headers."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(registry, "REGISTRIES", {})
    cache.clear()
    try:
        with override_settings(MCP={"AUTH": "none", **mcp}):
            clear_url_caches()
            yield LocalClient()
    finally:
        monkeypatch.undo()
        clear_url_caches()


async def post(client: AsyncClient, method: str, params: Any = None, path: str = "/mcp", **headers: str) -> Any:
    """One request of the handshake era, or with `stateless` of the other."""
    version = headers.pop("stateless", None)
    params = dict(params or {})
    if version:
        params["_meta"] = {f"{OWN}protocolVersion": version, f"{OWN}clientCapabilities": {}}
        headers |= {"mcp-protocol-version": version, "mcp-method": method}
        headers |= {"mcp-name": params["name"]} if "name" in params else {}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    sent = {"accept": "application/json, text/event-stream", **headers}
    kind = sent.pop("content-type", "application/json")
    return await client.post(path, body, content_type=kind, headers=sent)


async def notify(client: AsyncClient, key: str, message: dict[str, Any] | None = None) -> Any:
    """A message that is not answered: `initialized`, unless it is another."""
    body = json.dumps(message or {"jsonrpc": "2.0", "method": "notifications/initialized"})
    headers = {"accept": "application/json, text/event-stream", "mcp-session-id": key}
    return await client.post("/mcp", body, content_type="application/json", headers=headers)


async def opened(client: AsyncClient, path: str = "/mcp") -> str:
    """The id of a new session."""
    reply = await post(client, "initialize", INITIALIZE, path=path)
    assert reply.status_code == 200, reply.content
    return str(reply.headers["mcp-session-id"])


async def test_endpoints_are_served_at_their_paths() -> None:
    with project() as client:
        for path in ("/mcp", "/mcp/", "/mcp/sse", "/mcp/sse/"):
            assert resolve(path)
        assert (await post(client, "server/discover", stateless=STATELESS)).status_code == 200
        assert (await post(client, "initialize", INITIALIZE)).status_code == 200


async def test_the_memory_has_the_same_tools() -> None:
    user = await User.objects.acreate_user("alice")
    server = Server("memory", registry=registry.get_registry("memory"), ports=get_ports())
    client = TestClient(server, user=user)
    tools = {found["name"] for found in await client.list_tools()}
    wanted = {"save_conversation", "delete_conversation", "save_user_fact", "get_user_facts", "delete_user_fact"}
    assert wanted <= tools
    templates = {found["uriTemplate"] for found in await client.list_resource_templates()}
    assert templates == {"memory://conversations/{id}"}


async def test_resource_metadata_is_served() -> None:
    server = {
        "REQUIRED_SCOPES": ["shop:read"],
        "AUTHORIZATION_SERVERS": ["https://idp.example"],
        "RESOURCE_METADATA": {
            "resource_name": "Shop",
            "resource_documentation": "https://x.example",
            "resource": "evil",
        },
    }
    with project(AUTH="token", ORIGIN=ORIGIN, SERVERS={"default": server}) as client:
        for path in (f"{WELL_KNOWN}/mcp", WELL_KNOWN):
            reply = await client.get(path)
            said = reply.json()
            assert (said["resource"], said["scopes_supported"]) == (f"{ORIGIN}/mcp", ["shop:read"])
            assert said["authorization_servers"] == ["https://idp.example"]
            assert (said["resource_name"], said["resource_documentation"]) == ("Shop", "https://x.example")
            assert said["bearer_methods_supported"] == ["header"]
            assert reply.headers["access-control-allow-origin"] == "*"
        assert (await client.post(f"{WELL_KNOWN}/mcp")).status_code == 405


class Verifier:
    """A verifier of the project's own."""

    asked: list[str] = []

    def accepts(self, token: str) -> bool:
        return token.startswith("acme-")

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        self.asked.append(token)
        if token == "acme-bad":
            raise AuthError("invalid_token", "No such token")
        if token == "acme-down":
            raise AuthError("unavailable")
        audience = {"acme-other": "https://other.example", "acme-origin": ORIGIN}.get(token, resource.uri)
        scopes = frozenset({"shop:read"} if token != "acme-poor" else ())
        facts: dict[str, Any] = {"issuer": "acme", "subject": "s", "client_id": "c", "claims": {"tenant": "acme"}}
        user = User(pk=7, username="alice") if token == "acme-user" else None
        return DjangoPrincipal(**facts, scopes=scopes, audience=audience, user=user)


def required_scopes(request: AuthRequest) -> list[str]:
    """The scopes that a request takes."""
    tenant = request.headers.get("X-Tenant", "")
    if tenant == "broken":
        raise LookupError("no such tenant")
    return [f"{tenant or 'shop'}:read"]


def authorization_servers(request: AuthRequest) -> list[str]:
    """Where a request is sent for tokens."""
    return [f"https://{request.headers.get('X-Tenant', 'idp')}.example"]


def resource_metadata_url(request: AuthRequest) -> str:
    """Where clients find the metadata."""
    return f"{ORIGIN}{WELL_KNOWN}/mcp?realm={request.headers.get('X-Tenant', 'none')}".split("?")[0]


MODULE = __name__
GUARDED: dict[str, Any] = {"AUTH": [f"{MODULE}.Verifier"], "ORIGIN": ORIGIN}


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_a_custom_verifier_identifies_the_caller() -> None:
    with project(**GUARDED, SERVERS={"default": {"REQUIRED_SCOPES": ["shop:read"]}}) as client:

        @tool
        async def who(ctx: Context) -> str:
            principal: Any = ctx.principal
            return f"{principal.key} {principal.claims['tenant']}"

        called = await post(
            client, "tools/call", {"name": "who", "arguments": {}}, stateless=STATELESS, **_bearer("acme-1")
        )
        assert called.json()["result"]["content"][0]["text"] == "acme|s|c acme"
        for token, status in (
            ("acme-1", 200),
            ("acme-bad", 401),
            ("acme-other", 401),
            ("acme-origin", 401),
            ("acme-poor", 403),
        ):
            reply = await post(client, "server/discover", stateless=STATELESS, **_bearer(token))
            assert reply.status_code == status, (token, reply.content)


async def test_settings_may_depend_on_the_request() -> None:
    server = {
        "REQUIRED_SCOPES": f"{MODULE}.required_scopes",
        "AUTHORIZATION_SERVERS": f"{MODULE}.authorization_servers",
        "RESOURCE_METADATA_URL": f"{MODULE}.resource_metadata_url",
    }
    with project(**GUARDED, SERVERS={"default": server}) as client:
        reply = await post(client, "server/discover", stateless=STATELESS, **{"x-tenant": "acme"})
        assert 'scope="acme:read"' in reply.headers["www-authenticate"]
        assert f'resource_metadata="{ORIGIN}{WELL_KNOWN}/mcp"' in reply.headers["www-authenticate"]
        said = (await client.get(f"{WELL_KNOWN}/mcp", headers={"x-tenant": "acme"})).json()
        assert said["authorization_servers"] == ["https://acme.example"]
        poor = await post(client, "server/discover", stateless=STATELESS, **{"x-tenant": "acme", **_bearer("acme-1")})
        assert poor.status_code == 403, "and it is enforced here"


async def test_streams_are_resumed() -> None:
    with project() as client:

        @tool
        async def work(ctx: Context) -> str:
            await ctx.info("begun")
            return "done"

        session = {"mcp-session-id": await opened(client)}
        await notify(client, session["mcp-session-id"])
        reply = await post(client, "tools/call", {"name": "work", "arguments": {}}, **session)
        events = Decoder().feed(b"".join([chunk async for chunk in reply]))
        assert b"done" in events[-1].data
        headers = {**session, "accept": "text/event-stream", "last-event-id": str(events[0].id)}
        again = await client.get("/mcp", headers=headers)
        assert again.status_code == 200
        assert b"done" in b"".join([chunk async for chunk in again])
        forged = await client.get("/mcp", headers={**headers, "last-event-id": "made-up:1"})
        assert forged.status_code == 400, "it is no id of this session's"
